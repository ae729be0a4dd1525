"""Which of a bookie's registered endpoints this machine can use."""

from __future__ import annotations

import asyncio
import socket

from bkctl.model.bookie import Endpoint, is_loopback


async def usable(endpoint: Endpoint | None, bookie_host: str) -> Endpoint | None:
    """Returns the endpoint; None if it does not exist or is on the loopback address of another machine.

    A connection to such an address would reach a server of this machine instead of the bookie.

    Args:
        endpoint: as the bookie registered it.
        bookie_host: the host where the bookie serves clients.
    """
    if endpoint is None or not is_loopback(endpoint.host) or is_loopback(bookie_host):
        return endpoint
    return endpoint if await asyncio.to_thread(_is_of_this_machine, bookie_host) else None


def _is_of_this_machine(host: str) -> bool:
    """Worker: whether the host is an address of this machine, which a socket can be bound to."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as s:
            try:
                s.bind(address)
            except OSError:
                continue
            return True
    return False
