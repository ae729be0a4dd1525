"""The one HTTP client: requests to brokers, bookies and push gateways, over http and https.

It follows no redirect: callers that send credentials decide which address gets them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bkctl.errors import Unavailable

_PLAIN: Final = {"Accept-Encoding": "identity"}
"""A compressed response could be longer than it seems."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of any status.

    Attributes:
        location: the address of a redirect; None without one.
    """

    status: int
    location: str | None
    body: bytes


def send(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float,
    body_bytes_max: int,
    proxies: bool = True,
) -> Response:
    """Sends a request and returns the response; blocks.

    Args:
        timeout_s: for connecting, for each read of the headers, and for the whole body.
        body_bytes_max: a longer response is an error.
        proxies: whether the proxies of the environment (HTTP_PROXY, NO_PROXY, …) are used.

    Raises:
        Unavailable: the address is not valid, the connection fails, or the response is late or too long. The cause
            is a TimeoutError if the response was late.
    """
    import httpx

    deadline = time.monotonic() + timeout_s
    try:
        with (
            httpx.Client(timeout=timeout_s, trust_env=proxies, follow_redirects=False) as client,
            client.stream(method, url, content=body, headers={**_PLAIN, **(headers or {})}) as response,
        ):
            received = bytearray()
            for part in response.iter_raw():
                received += part
                if len(received) > body_bytes_max:
                    raise Unavailable(f"{url}: the response has more than {body_bytes_max} bytes", url=url)
                if time.monotonic() > deadline:
                    raise TimeoutError
            return Response(response.status_code, response.headers.get("location"), bytes(received))
    except (TimeoutError, httpx.TimeoutException):
        raise Unavailable(f"{url}: no response in {timeout_s:g} s", url=url) from TimeoutError()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise Unavailable(f"{url}: {error}", url=url) from None
