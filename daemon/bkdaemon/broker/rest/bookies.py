"""Bookies and their racks in Pulsar's REST interface: /bookies holds group → bookie → {"rack", "hostname"}.

A bookie is in one group at most. Source: Bookies.java, BookiesRackConfiguration.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from bkctl.client.racks import PULSAR_RACKS_PATH
from bkctl.errors import AlreadyExists, NotFound, Refused
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.meta.policies import typed
from bkdaemon.broker.rest.base import ADMIN, Handler, object_of

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

RACKS: Final = ADMIN + "/bookies/racks-info"
INFO_KEYS: Final = ("rack", "hostname")
WRONG_RACK: Final = (
    "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the rack name is not "
    "allowed to contain slash (`/`) except for the beginning and end of the rack name string. When "
    "`RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only contain one slash (`/`) except for the "
    "beginning and end of the rack name string."
)


async def bookies(service: MaintainedBroker, request: Request) -> Json:
    """Returns all bookies: those with a cookie, available or not, and those that are registered."""
    registry = service.bookkeeper.registry
    known = await registry.known() | await registry.writable()
    return {"bookies": [{"bookieId": str(bookie)} for bookie in sorted(known)]}


async def racks(service: MaintainedBroker, request: Request) -> Json:
    """Returns the stored groups of bookies with their racks."""
    found = await read_document(service.store, PULSAR_RACKS_PATH)
    return {} if found is None else found.value


async def rack(service: MaintainedBroker, request: Request) -> Json:
    """Returns a bookie's rack."""
    bookie = request.path_params["bookie"]
    for group in (await racks(service, request)).values():
        if bookie in group:
            return dict(group[bookie])
    raise _absent(bookie)


async def put_rack(service: MaintainedBroker, request: Request) -> None:
    """Adds a bookie with its rack to a group, and removes it from its former group."""
    bookie, group = request.path_params["bookie"], request.query_params.get("group")
    if not group:
        raise Refused("Bookie 'group' parameters is missing")
    kinds: dict[str, tuple[Any, Any]] = dict.fromkeys(INFO_KEYS, ("str", None))
    info = typed(kinds, await object_of(request), "rack")
    if service.config.rack_aware and info.get("rack", "").strip("/").count("/") != int(service.config.region_aware):
        raise Refused(WRONG_RACK)

    def change(old: Json) -> Json:
        return {**_without(old, bookie), group: {**old.get(group, {}), bookie: info}}

    await _change(service, change)


async def delete_rack(service: MaintainedBroker, request: Request) -> None:
    """Removes a bookie's rack."""
    bookie = request.path_params["bookie"]

    def change(old: Json) -> Json:
        if not any(bookie in group for group in old.values()):
            raise _absent(bookie)
        return _without(old, bookie)

    await _change(service, change)


def _without(groups: Json, bookie: str) -> Json:
    """Returns the groups without a bookie, and without groups that become empty."""
    left = {name: {b: info for b, info in group.items() if b != bookie} for name, group in groups.items()}
    return {name: group for name, group in left.items() if group}


def _absent(bookie: str) -> NotFound:
    return NotFound(f"Bookie rack placement configuration not found: {bookie}")


async def _change(service: MaintainedBroker, change: Callable[[Json], Json]) -> None:
    try:
        await service.store.create(PULSAR_RACKS_PATH, encode_json({}), parents=True)
    except AlreadyExists:
        pass
    await update_document(service.store, PULSAR_RACKS_PATH, change)


BOOKIES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{ADMIN}/bookies/all"): bookies,
    ("GET", RACKS): racks,
    ("GET", RACKS + "/{bookie}"): rack,
    ("POST", RACKS + "/{bookie}"): put_rack,
    ("PUT", RACKS + "/{bookie}"): put_rack,
    ("DELETE", RACKS + "/{bookie}"): delete_rack,
}
