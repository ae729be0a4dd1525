"""Makes a running bookie read-only, or writable again: bkctl's by gRPC, Java's by its HTTP server.

    registered endpoint   read-only                                          writable
    grpc (ours)           SetReadOnly, with who and why                      SetWritable
    http (Java's)         PUT /api/v1/bookie/state/readonly {"readOnly": …}  the same
    neither               NoWay: the bookie cannot be reached

An endpoint on the loopback address of another machine cannot be used from here.

Source: BookieStateReadOnlyService.java.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from bkctl.client import http
from bkctl.client.admin import AdminClient
from bkctl.client.endpoints import usable
from bkctl.errors import NotFound, Refused, ServerError, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.model.bookie import GRPC_PROTOCOL, HTTP_PROTOCOL, Endpoint
from bkctl.model.ids import BookieId

TIMEOUT_S: Final = 15.0
RESPONSE_BYTES_MAX: Final = 4096
PATH: Final = "/api/v1/bookie/state/readonly"
OK: Final = 200
ANYWHERE: Final = ("0.0.0.0", "::")
"""The host that Java registers for its HTTP server."""


class NoWay(Refused):
    """The bookie has no port for the request."""

    kind = "no_admin_port"


async def set_mode(registry: BookieRegistry, bookie: BookieId, *, read_only: bool, who: str, why: str) -> str:
    """Sets the mode; returns the interface that was used. The registration shows the new mode.

    Raises:
        NoWay: the bookie has neither port. Unavailable: it is not registered, or does not answer. Refused: it refuses.
    """
    try:
        info = await registry.service_info(bookie)
    except NotFound:
        raise Unavailable(f"bookie {bookie} is not registered: it is not running", bookie=bookie) from None
    host, _ = await registry.address(bookie)
    grpc = await usable(info.endpoint(GRPC_PROTOCOL), host)
    if grpc is not None:
        async with AdminClient(grpc.host, grpc.port, timeout_s=TIMEOUT_S) as admin:
            await (admin.set_read_only(who, why) if read_only else admin.set_writable(who))
        return "gRPC"
    http_endpoint = await usable(info.endpoint(HTTP_PROTOCOL), host)
    if http_endpoint is None:
        raise NoWay(
            f"bookie {bookie} has no admin port reachable from this machine: cannot change its mode from here",
            hint="run this on the bookie's machine, or set adminGrpcAddress or httpServerEnabled on the bookie; "
            "--leave-writable drains it anyway, but new ledgers may be placed on it meanwhile",
            bookie=bookie,
        )
    await asyncio.to_thread(_put, http_endpoint, host, bookie, read_only)
    return "HTTP"


def _put(endpoint: Endpoint, bookie_host: str, bookie: BookieId, read_only: bool) -> None:
    host = bookie_host if endpoint.host in ANYWHERE else endpoint.host
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{endpoint.port}{PATH}"
    body = json.dumps({"readOnly": read_only}).encode()
    headers = {"Content-Type": "application/json"}
    try:
        response = http.send(
            "PUT", url, body, headers, timeout_s=TIMEOUT_S, body_bytes_max=RESPONSE_BYTES_MAX, proxies=False
        )
    except Unavailable as e:
        raise Unavailable(f"failed to set the mode of bookie {bookie}: {e.message}", bookie=bookie) from None
    if response.status != OK:
        text = response.body.decode(errors="replace").strip()
        raise ServerError(
            f"bookie {bookie} did not change its mode: HTTP {response.status}: {text}", status=response.status
        )
