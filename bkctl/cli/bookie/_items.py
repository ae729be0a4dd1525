"""Shared by the verbs of `bookie`: the form of a bookie, and requests to bookies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bkctl.cli.env import Env
from bkctl.errors import BadBytes, NotFound, Unavailable
from bkctl.model.bookie import GRPC_PROTOCOL, HTTP_PROTOCOL, BookieServiceInfo, BookieState
from bkctl.model.ids import BookieId, parse_bookie_id

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.client.admin import AdminClient

Bookies = Annotated[list[str], typer.Argument(metavar="BOOKIE…", help="bookie ids: host:port, - for stdin, @file")]
Bookie = Annotated[str, typer.Argument(metavar="BOOKIE", help="bookie id: host:port")]
ASK_TIMEOUT_S: Final = 10.0
IN_FLIGHT_MAX: Final = 32


def bookie_ids(env: Env, given: Iterable[str]) -> list[BookieId]:
    """Bookie ids with `-` and `@file` expanded, checked, each once."""
    return list(dict.fromkeys(parse_bookie_id(name) for name in env.names(given)))


async def check_known(cluster: ClusterAccess, bookies: Iterable[BookieId]) -> None:
    """Checks that bookies which no ledger names are registered or have a cookie.

    Raises:
        NotFound: the cluster does not know one.
    """
    registered = await cluster.bookies.registered()
    known = registered.writable | registered.read_only | await cluster.bookies.known()
    for bookie in bookies:
        if bookie not in known:
            raise NotFound(f"bookie {bookie} does not exist", hint="bkctl bookie list", bookie_id=bookie)


class Directory:
    """The bookies in the metadata store, read once."""

    def __init__(self, writable: set[BookieId], read_only: set[BookieId], known: set[BookieId]) -> None:
        self.writable = writable
        self.read_only = read_only
        self.known = known

    @classmethod
    async def read(cls, cluster: ClusterAccess) -> Directory:
        """Both lists and the cookies."""
        bookies = cluster.bookies
        return cls(await bookies.writable(), await bookies.read_only(), await bookies.known())

    def state(self, bookie_id: BookieId) -> BookieState:
        """Writable, read-only, or known by its cookie alone.

        Raises:
            NotFound: none of them.
        """
        if bookie_id in self.writable:
            return BookieState.READ_WRITE
        if bookie_id in self.read_only:
            return BookieState.READ_ONLY
        if bookie_id in self.known:
            return BookieState.DOWN
        raise NotFound(f"bookie {bookie_id} does not exist", hint="bkctl bookie list", bookie_id=bookie_id)

    def all(self) -> list[BookieId]:
        """Every bookie, sorted."""
        return sorted(self.writable | self.read_only | self.known)


async def bookie_item(env: Env, cluster: ClusterAccess, directory: Directory, bookie_id: BookieId) -> dict[str, Any]:
    """One bookie as every verb shows it; fields that were not requested are null."""
    from bkctl.codec.registration import bookie_address

    state = directory.state(bookie_id)
    item: dict[str, Any] = {
        "bookie_id": bookie_id,
        "state": state,
        "address": None,
        "http_port": None,
        "grpc_port": None,
        "cookie": bookie_id in directory.known,
        "ledgers": None,
        "disk": None,
    }
    if state is BookieState.DOWN:
        return item
    try:
        info: BookieServiceInfo = await cluster.bookies.service_info(bookie_id)
        host, port = bookie_address(bookie_id, info, source=f"registration of {bookie_id}")
    except (NotFound, BadBytes) as e:  # It unregistered meanwhile, or its registration cannot be decoded.
        env.warn(e.message)
        return item
    item["address"] = f"{host}:{port}"
    for field, protocol in (("http_port", HTTP_PROTOCOL), ("grpc_port", GRPC_PROTOCOL)):
        endpoint = info.endpoint(protocol)
        item[field] = endpoint.port if endpoint is not None else None
    return item


async def admin_of(cluster: ClusterAccess, bookie_id: BookieId, timeout_s: float = ASK_TIMEOUT_S) -> AdminClient | None:
    """The admin port of a registered bookie; None for a Java bookie, or if this machine cannot reach the port.

    Raises:
        Unavailable: the bookie is not registered.
    """
    try:
        info = await cluster.bookies.service_info(bookie_id)
    except NotFound:
        raise Unavailable(f"bookie {bookie_id} is not registered", bookie_id=bookie_id) from None
    from bkctl.client.endpoints import usable
    from bkctl.codec.registration import bookie_address

    host, _ = bookie_address(bookie_id, info, source=f"registration of {bookie_id}")
    endpoint = await usable(info.endpoint(GRPC_PROTOCOL), host)
    if endpoint is None:
        return None
    from bkctl.client.admin import AdminClient

    return AdminClient(endpoint.host, endpoint.port, timeout_s=timeout_s)


async def disk_by_wire(address: str, bookie_id: BookieId, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, int | None]:
    """A bookie's disk sizes, read through its client port; works with every bookie.

    Raises:
        Unavailable: it does not answer.
    """
    import asyncio

    from bkctl.client.bookie import BookieConnection
    from bkctl.model.status import Status
    from bkctl.world import real_world

    host, _, port = address.rpartition(":")

    async def resolve() -> tuple[str, int]:
        return host, int(port)

    connection = BookieConnection(bookie_id, 3, real_world().network, resolve, connect_timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            reply = await connection.call(lambda conversation: conversation.info(), timeout_s)
    except TimeoutError:
        raise Unavailable(f"no answer from bookie {bookie_id} at {address} in {timeout_s:.0f} s") from None
    finally:
        connection.close()
    if reply.status != Status.OK:
        raise Unavailable(f"bookie {bookie_id} at {address} does not answer", bookie_id=bookie_id)
    total, free = reply.extra
    return {"total": total, "free": free}
