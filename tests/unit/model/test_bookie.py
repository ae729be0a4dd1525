"""Loopback hosts and the endpoints of a bookie's registration."""

from __future__ import annotations

import pytest

from bkctl.model.bookie import BOOKIE_PROTOCOL, GRPC_PROTOCOL, HTTP_PROTOCOL, BookieServiceInfo, Endpoint, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_a_loopback_host_is_recognized(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "127.example.org", "bookie-1", ""])
def test_another_host_is_not_a_loopback_host(host: str) -> None:
    assert not is_loopback(host)


def test_the_first_endpoint_of_a_protocol_is_returned() -> None:
    bookie, http = Endpoint("bookie", 3181, "h", BOOKIE_PROTOCOL), Endpoint("http", 8000, "h", HTTP_PROTOCOL)
    later = Endpoint("http", 8001, "h", HTTP_PROTOCOL)
    info = BookieServiceInfo((bookie, http, later))
    assert info.endpoint(BOOKIE_PROTOCOL) == bookie
    assert info.endpoint(HTTP_PROTOCOL) == http
    assert info.endpoint(GRPC_PROTOCOL) is None
    assert BookieServiceInfo().endpoint(BOOKIE_PROTOCOL) is None
