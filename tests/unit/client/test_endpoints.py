"""Endpoints on loopback addresses of other machines are not usable."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bkctl.client.endpoints import usable
from bkctl.model.bookie import Endpoint, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_a_loopback_host_is_recognized(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "127.example.org", "bookie-1", ""])
def test_another_host_is_no_loopback_host(host: str) -> None:
    assert not is_loopback(host)


def found(endpoint: Endpoint | None, bookie_host: str) -> Endpoint | None:
    return asyncio.run(usable(endpoint, bookie_host))


def test_a_loopback_endpoint_is_usable_on_the_bookies_machine_only() -> None:
    loopback, public = (Endpoint("admin", 9, host, "grpc") for host in ("127.0.0.1", "192.0.2.7"))
    assert found(loopback, "192.0.2.7") is None, "TEST-NET-1 is never an address of this machine"
    assert found(loopback, "no-such-host.invalid") is None
    assert found(loopback, "127.0.0.1") == loopback
    assert found(loopback, "0.0.0.0") == loopback, "an address that a socket of this machine can be bound to"
    assert found(public, "192.0.2.7") == public
    assert found(None, "127.0.0.1") is None


def test_the_machines_own_addresses_are_recognized() -> None:
    own = socket.gethostbyname(socket.gethostname())
    loopback = Endpoint("admin", 9, "127.0.0.1", "grpc")
    assert found(loopback, own) == loopback
