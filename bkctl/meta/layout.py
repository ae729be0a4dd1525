"""The layout of a cluster's ledgers in the metadata store."""

from __future__ import annotations

from bkctl.codec.layout import Layout, LedgerManager, decode_layout, encode_layout
from bkctl.errors import AlreadyExists, Conflict, NotFound, UsageError
from bkctl.meta import paths
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.store import MetadataStore
from bkctl.world import Random


async def read_layout(store: MetadataStore, root: str) -> Layout | None:
    """The content of LAYOUT, or None without one."""
    path = f"{root}/{paths.LAYOUT}"
    try:
        return decode_layout((await store.get(path)).data, source=path)
    except NotFound:
        return None


async def write_layout(store: MetadataStore, root: str, layout: Layout) -> None:
    """Writes LAYOUT if it does not exist; an equal one that another process wrote first is accepted.

    Raises:
        Conflict: another layout exists.
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
    """The ledgers at root, laid out as LAYOUT says. `manager` is that of the URI and must be the same.

    Without a LAYOUT the URI's manager is used, else the default; `write` stores it, as every Java client does.

    Raises:
        UsageError: LAYOUT names another manager. NotFound: the root does not exist.
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
            f"{root} has the layout {layout.manager.value}, the metadata URI has {manager.value}",
            hint=f"zk+{layout.manager.value}://… or just zk://…",
        )
    return LedgerStore(store, root, layout.manager, random=random)


def no_cluster(store: MetadataStore, root: str) -> NotFound:
    """The error for a missing root."""
    return NotFound(
        f"no BookKeeper cluster exists at {root} of {store.where}", hint="bkctl cluster init creates one", path=root
    )
