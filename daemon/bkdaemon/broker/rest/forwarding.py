"""Sends a request to the broker that owns a topic or bundle, in the name of the caller.

The owner authenticates the caller by the same headers, so they go along; and only to brokers that the cluster's
metadata names, also where a broker redirects to another. Java's broker asks in its own name (its admin client) after
it has authorized the caller; this broker has no such client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from bkctl.client import http
from bkctl.errors import Conflict, NotFound, Refused, ServerError, Unauthorized, Unavailable
from bkctl.model.origin import origin, origins

if TYPE_CHECKING:
    from starlette.requests import Request

    from bkdaemon.broker.maintained import MaintainedBroker

CREDENTIALS: Final = ("authorization", "x-pulsar-auth-method-name", "x-original-principal")
"""Headers with the credentials of the caller."""
WEB_ADDRESSES: Final = ("webServiceUrl", "webServiceUrlTls")
TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
REDIRECTS_MAX: Final = 5
TEMPORARY_REDIRECT: Final = 307
SUCCESS: Final = 2
"""The first digit of a status."""
UNAUTHORIZED: Final = (401, 403)


async def forward(service: MaintainedBroker, request: Request, method: str, url: str, body: bytes = b"") -> Any:
    """Return the answer of another broker, JSON or None; url is an address that the metadata store has.

    Raises:
        NotFound, Conflict, Refused, Unauthorized, Unavailable, ServerError: as the broker answers, or no broker does.
    """
    headers = {name: value for name in CREDENTIALS if (value := request.headers.get(name)) is not None}
    brokers = service.backend.ownership.brokers
    reports = [await brokers.report(broker_id) or {} for broker_id in await brokers.brokers()]
    known = origins([url, *(report.get(key) for report in reports for key in WEB_ADDRESSES)])
    return await asyncio.to_thread(send, method, url, body, headers, known)


def send(method: str, url: str, body: bytes, headers: Mapping[str, str], known: Collection[str]) -> Any:
    """Asks a broker, and again where it redirects; blocks.

    Args:
        headers: the caller's credentials.
        known: origins of the cluster's brokers; no other address is asked.
    """
    for _ in range(REDIRECTS_MAX + 1):
        if origin(url) not in known:
            raise Unavailable(f"refused to forward the request to {url}: no broker is registered with that address")
        sent = {"content-type": "application/json", **headers}
        response = http.send(method, url, body or None, sent, timeout_s=TIMEOUT_S, body_bytes_max=ANSWER_BYTES_MAX)
        if response.status == TEMPORARY_REDIRECT and response.location:
            url = urljoin(url, response.location)
        elif response.status // 100 == SUCCESS:
            return json.loads(response.body) if response.body else None
        else:
            raise _refusal(url, response.status, response.body.decode(errors="replace"))
    raise Unavailable(f"{url}: more than {REDIRECTS_MAX} redirects")


def _refusal(url: str, status: int, text: str) -> NotFound | Conflict | Refused | ServerError | Unavailable:
    words = f"{url}: {status} {text}"
    if status in UNAUTHORIZED:
        return Unauthorized(words, status=status)
    kinds: dict[int, type[NotFound | Conflict | Refused]] = {404: NotFound, 409: Conflict, 412: Refused}
    return kinds.get(status, Unavailable)(words)
