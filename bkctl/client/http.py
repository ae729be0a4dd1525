"""An opener of http and https addresses that follows no redirect.

urllib's own opener reads file: and ftp: addresses too, and repeats a request with all its headers wherever it is
redirected. Both users of this module send credentials: the command line and the broker's forwarding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.request import OpenerDirector


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
