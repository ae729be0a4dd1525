"""A cluster in the metadata store: init, format, nuke; its state and the layout of its ledgers.

    init     refuses an existing root; creates it, `available`, `available/readonly` and INSTANCEID in one step, then
             LAYOUT
    format   the root may exist: deletes all ledgers, id generators, markers, locks and cookies; new INSTANCEID and
             LAYOUT; keeps registrations, `disable`, the recovery delay, the audit times and the election
    nuke     refuses while a bookie is registered, for another instance id, and where the root holds anything that is
             not BookKeeper's; then deletes everything, the root too

Source: BookKeeperAdmin.java, ZKRegistrationManager.java, AbstractZkLedgerManagerFactory.java.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Final

from bkctl.codec.layout import (
    Layout,
    LedgerManager,
    decode_instance_id,
    encode_instance_id,
)
from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta import paths
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.layout import no_cluster, read_layout, write_layout
from bkctl.meta.layout import (
    open_ledgers as open_ledgers,
)  # Re-exported for callers that use it with the functions of this module.
from bkctl.meta.store import ANY_VERSION, Create, Delete, MetadataStore, NotEmpty, join, parent_of
from bkctl.world import Random

DELETE_BATCH: Final = 500  # nodes deleted in one request
LIST_IN_FLIGHT_MAX: Final = 64  # directories listed together
DELETE_ROUNDS_MAX: Final = 20  # times a directory is found filled again while it is deleted
FORMATTED_UNDERREPLICATION: Final = ("ledgers", "locks")


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The state of a cluster's root; layout and instance_id are null if a node is missing."""

    root: str
    layout: Layout | None
    instance_id: str | None
    writable_bookies: int
    read_only_bookies: int
    known_bookies: int


def new_instance_id(random: Random | None = None) -> str:
    """A random UUID, from a seeded source where repeatability is wanted."""
    if random is None:
        return str(uuid.uuid4())
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


async def init_cluster(
    store: MetadataStore,
    root: str,
    manager: LedgerManager = LedgerManager.HIERARCHICAL,
    *,
    random: Random | None = None,
    parents: bool = False,
) -> str:
    """Makes a new cluster at root and returns its instance id. `parents` makes the nodes above it too; Java does not.

    Raises:
        AlreadyExists: the root exists. NotFound: the parent of the root is missing.
    """
    if await store.exists(root) is not None:
        raise AlreadyExists(
            f"{root} of {store.where} exists already",
            hint="bkctl cluster info shows it; bkctl cluster format deletes its ledgers",
            path=root,
        )
    if parents and parent_of(root) != "/":
        await _make(store, parent_of(root))
    instance_id = new_instance_id(random)
    available = f"{root}/{paths.AVAILABLE}"
    await store.multi(
        [
            Create(root),
            Create(available),
            Create(f"{available}/{paths.READ_ONLY}"),
            Create(f"{root}/{paths.INSTANCE_ID}", encode_instance_id(instance_id)),
        ]
    )
    await write_layout(store, root, Layout(manager))
    return instance_id


async def read_instance_id(store: MetadataStore, root: str) -> str | None:
    """The cluster's instance id; None if it has none, so that it is not checked.

    Raises:
        NotFound: the root does not exist.
    """
    path = f"{root}/{paths.INSTANCE_ID}"
    try:
        return decode_instance_id((await store.get(path)).data, source=path)
    except NotFound:
        if await store.exists(root) is None:
            raise no_cluster(store, root) from None
        return None


async def cluster_info(store: MetadataStore, root: str) -> ClusterInfo:
    """The state of the cluster at root.

    Raises:
        NotFound: it does not exist.
    """
    instance_id = await read_instance_id(store, root)
    bookies = BookieRegistry(store, root)
    registered = await bookies.registered()
    return ClusterInfo(
        root=root,
        layout=await read_layout(store, root),
        instance_id=instance_id,
        writable_bookies=len(registered.writable),
        read_only_bookies=len(registered.read_only),
        known_bookies=len(await bookies.known()),
    )


async def format_cluster(
    store: MetadataStore, root: str, manager: LedgerManager | None = None, *, random: Random | None = None
) -> str:
    """Deletes all ledgers of the cluster at root; returns its new instance id.

    The bookies' registrations stay; their cookies do not, so they will not start again with the data they have. The
    layout stays what it was, unless a manager is given.
    """
    layout = await read_layout(store, root)
    old = layout.manager if layout is not None else LedgerManager.HIERARCHICAL
    available = f"{root}/{paths.AVAILABLE}"
    for path in (root, available, f"{available}/{paths.READ_ONLY}"):
        await _make(store, path)
    await _delete_ledgers(store, root, old)
    for name in FORMATTED_UNDERREPLICATION:
        await delete_tree(store, f"{root}/{paths.UNDERREPLICATION}/{name}")
    await delete_tree(store, f"{root}/{paths.COOKIES}")
    await _forget(store, f"{root}/{paths.LAYOUT}")
    await write_layout(store, root, Layout(manager if manager is not None else old))
    await _forget(store, f"{root}/{paths.INSTANCE_ID}")
    instance_id = new_instance_id(random)
    await store.create(f"{root}/{paths.INSTANCE_ID}", encode_instance_id(instance_id))
    return instance_id


async def check_nuke(store: MetadataStore, root: str, instance_id: str | None) -> None:
    """Checks that the cluster at root may be deleted. instance_id None skips the check of the id.

    Raises:
        NotFound: the cluster does not exist.
        Refused: a bookie is registered, it is another instance, or the root holds a foreign node.
    """
    found = await read_instance_id(store, root)
    if instance_id is not None and instance_id != found:
        raise Refused(f"{root} is instance {found}, not {instance_id}", hint="bkctl cluster info shows it")
    bookies = BookieRegistry(store, root)
    try:
        alive = (await bookies.writable()) | (await bookies.read_only())
    except NotFound:
        alive = set()
    if alive:
        raise Refused(
            f"{len(alive)} bookies of {root} are registered: {', '.join(sorted(alive))}", hint="stop them first"
        )
    layout = await read_layout(store, root)
    manager = layout.manager if layout is not None else LedgerManager.HIERARCHICAL
    names = await store.children(root)
    foreign = [name for name in names if not paths.is_special(name) and not paths.holds_ledgers(manager, name)]
    if foreign:
        raise Refused(
            f"{root} contains nodes that are not BookKeeper's: {', '.join(foreign)}",
            hint="delete it manually if it is not needed",
        )


async def nuke_cluster(store: MetadataStore, root: str, instance_id: str | None) -> None:
    """Deletes the cluster at root and everything in it, once check_nuke() finds no reason against it."""
    await check_nuke(store, root, instance_id)
    available = f"{root}/{paths.AVAILABLE}"
    try:  # Without these nodes no bookie can register any more; if one just has, they are not empty.
        await _forget_empty(store, f"{available}/{paths.READ_ONLY}")
        await _forget_empty(store, available)
    except NotEmpty as e:
        raise Refused(f"a bookie is registering below {e.details['path']} now", hint="stop it first") from None
    await delete_tree(store, root)


async def delete_tree(store: MetadataStore, path: str) -> int:
    """Deletes a node and all below it, the deepest first, and returns their number; 0 if it does not exist."""
    deleted = 0
    for _ in range(DELETE_ROUNDS_MAX):
        nodes = await _below(store, path)
        if not nodes:
            return deleted
        for start in range(0, len(nodes), DELETE_BATCH):
            deleted += await _delete_batch(store, nodes[start : start + DELETE_BATCH])
    raise Conflict(f"{path} is refilled by another process while it is deleted", path=path)


async def _below(store: MetadataStore, path: str) -> list[str]:
    """The node and its descendants, children before parents; nothing where it is not there."""
    found: list[str] = []
    level = [path]
    while level:
        nodes = await store.get_many(level)
        here = [(at, node) for at, node in zip(level, nodes, strict=True) if node is not None]
        found += (at for at, _ in here)
        directories = [at for at, node in here if node.stat.num_children]
        level = []
        for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
            group = directories[start : start + LIST_IN_FLIGHT_MAX]
            listings = await asyncio.gather(*(_names(store, directory) for directory in group))
            level += (join(at, name) for at, names in zip(group, listings, strict=True) for name in names)
    return found[::-1]


async def _names(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NotFound:
        return []


async def _delete_batch(store: MetadataStore, nodes: list[str]) -> int:
    try:
        await store.multi([Delete(node, ANY_VERSION) for node in nodes])
        return len(nodes)
    except (NotFound, NotEmpty):  # another process deletes here too: delete one by one and skip missing nodes
        return sum([await _forget(store, node) for node in nodes])


async def _delete_ledgers(store: MetadataStore, root: str, manager: LedgerManager) -> None:
    for name in await store.children(root):
        generator = name in (paths.ID_GENERATOR, paths.LONG_ID_GENERATOR) or name.startswith(paths.ID_PREFIX)
        if generator or paths.holds_ledgers(manager, name):
            await delete_tree(store, f"{root}/{name}")


async def _make(store: MetadataStore, path: str) -> None:
    try:
        await store.create(path, b"", parents=True)
    except AlreadyExists:
        pass


async def _forget_empty(store: MetadataStore, path: str) -> None:
    """Deletes a node that must be empty; fine if it is not there."""
    try:
        await store.delete_any(path)
    except NotFound:
        pass


async def _forget(store: MetadataStore, path: str) -> bool:
    """Deletes a childless node whatever its version; False if it could not be, as in a tree that is being filled."""
    try:
        await store.delete_any(path)
    except (NotFound, NotEmpty):
        return False
    return True
