"""How a cluster's ledgers are laid out, and so how to reach them: the way that every command comes."""

from __future__ import annotations

from bkctl.codec.layout import Layout, LedgerManager, decode_layout, encode_layout
from bkctl.errors import AlreadyExists, Conflict, NotFound, UsageError
from bkctl.meta import paths
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.store import MetadataStore
from bkctl.world import Random


async def read_layout(store: MetadataStore, root: str) -> Layout | None:
    """What LAYOUT says, or None without one."""
    path = f"{root}/{paths.LAYOUT}"
    try:
        return decode_layout((await store.get(path)).data, source=path)
    except NotFound:
        return None


async def write_layout(store: MetadataStore, root: str, layout: Layout) -> None:
    """Writes LAYOUT if it does not exist; an equal one that another process wrote first is accepted.

    Raises:
        Conflict: another layout is there.
    """
    try:
        await store.create(f"{root}/{paths.LAYOUT}", encode_layout(layout))
    except AlreadyExists:
        found = await read_layout(store, root)
        if found is None or found.manager is not layout.manager:
            raise Conflict(f"{root} was given another layout meanwhile", path=root) from None


async def open_ledgers(
    store: MetadataStore,
    root: str,
    manager: LedgerManager | None = None,
    *,
    write: bool = False,
    random: Random | None = None,
) -> LedgerStore:
    """The ledgers at root, laid out as LAYOUT says. `manager` is what the URI asks for and has to be the same.

    Without a LAYOUT the URI's manager counts, else the default; `write` stores it, as every Java client does.

    Raises:
        UsageError: LAYOUT names another manager. NotFound: there is no root.
    """
    layout = await read_layout(store, root)
    if layout is None:
        if await store.exists(root) is None:
            raise no_cluster(store, root)
        layout = Layout(manager if manager is not None else LedgerManager.HIERARCHICAL)
        if write:
            await write_layout(store, root, layout)
    elif manager is not None and manager is not layout.manager:
        raise UsageError(
            f"{root} is laid out as {layout.manager.value}, the metadata URI says {manager.value}",
            hint=f"zk+{layout.manager.value}://… or just zk://…",
        )
    return LedgerStore(store, root, layout.manager, random=random)


def no_cluster(store: MetadataStore, root: str) -> NotFound:
    """The error for a root that is not there."""
    return NotFound(f"no BookKeeper cluster at {root} of {store.where}", hint="bkctl cluster init makes one", path=root)
