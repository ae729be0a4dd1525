"""Endpoints on loopback addresses of other machines are not usable."""

from __future__ import annotations

import asyncio
import socket

from bkctl.client.endpoints import usable
from bkctl.model.bookie import Endpoint


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
