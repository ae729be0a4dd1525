"""The addresses of a bookie: host name, interface, loopback, bookie id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.bookie.address import advertised_host, bookie_id_of, listening_host
from bkdaemon.bookie.config import BookieConfig

from bkctl.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"use_host_name": True}, "bookie7.rack-2.example.org"),
        ({"use_host_name": True, "use_short_host_name": True}, "bookie7"),
        ({"use_host_name": True, "use_short_host_name": True, "listening_interface": "lo"}, "of-127-0-0-1"),
        ({"use_short_host_name": True, "listening_interface": "lo"}, "127.0.0.1"),
        ({"use_host_name": True, "use_short_host_name": True, "advertised_address": "b.example.org"}, "b.example.org"),
    ],
)
def test_a_host_name_is_shortened_only_if_it_is_the_bookie_id(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], host: str
) -> None:
    def name_of(address: str = "") -> str:
        return f"of-{address.replace('.', '-')}.example.org" if address else "bookie7.rack-2.example.org"

    monkeypatch.setattr("socket.getfqdn", name_of)
    assert advertised_host(BookieConfig(allow_loopback=True, **settings)) == host


def test_an_interface_without_a_host_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda address: address)
    config = BookieConfig(allow_loopback=True, use_host_name=True, listening_interface="lo")
    with pytest.raises(UsageError, match=r"useHostNameAsBookieID.*127\.0\.0\.1"):
        advertised_host(config)


def test_bookie_id_and_listening_host_follow_the_configuration() -> None:
    here = BookieConfig(advertised_address="10.1.2.3", bookie_port=3182)
    assert bookie_id_of(here) == "10.1.2.3:3182"
    assert listening_host(here) == "0.0.0.0"
    assert listening_host(replace(here, advertised_address="127.0.0.1")) == "127.0.0.1"
    assert bookie_id_of(replace(here, bookie_id_text="a-name")) == "a-name"
    assert listening_host(replace(here, listening_interface="lo")) == "127.0.0.1"
    with pytest.raises(UsageError, match="address is 127"):
        bookie_id_of(replace(here, advertised_address="", listening_interface="lo"))
    with pytest.raises(UsageError, match="bookiePort=0"):
        bookie_id_of(replace(here, bookie_port=0))
    with pytest.raises(UsageError, match="no-such"):
        listening_host(replace(here, listening_interface="no-such0"))
