"""Which server an http or https address belongs to: credentials for one origin are sent to no other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

PORTS: Final = {"http": 80, "https": 443}
"""The ports that an address may leave out."""


def origin(url: str) -> str | None:
    """scheme://host:port of an http or https address; None for any other address, or one with a user's name in it."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return None
    if parts.scheme not in PORTS or not parts.hostname or parts.username is not None or not url.isprintable():
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def origins(urls: Collection[object]) -> frozenset[str]:
    """The origins of those that are http or https addresses."""
    return frozenset(found for url in urls if isinstance(url, str) and (found := origin(url)) is not None)
