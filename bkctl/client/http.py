"""HTTP without surprises: only http and https, no redirect followed unseen, and which server an address belongs to.

urllib's own opener reads file: and ftp: addresses too, and repeats a request with all its headers wherever it is
redirected. Both users of this module carry credentials: the command line and the broker's forwarding.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

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


def opener() -> OpenerDirector:
    """An opener of http and https addresses; a redirect is an HTTPError, as every status but 2xx is."""
    from urllib import request

    found = request.OpenerDirector()
    for handler in (
        request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler, request.UnknownHandler,
        request.HTTPDefaultErrorHandler, request.HTTPErrorProcessor,
    ):  # fmt: skip
        found.add_handler(handler())
    return found
