"""Find the owners of ledgers: one scan of the applications' metadata, whatever the number of ledgers.

    a node names the ledger                                          owned
    custom metadata names an owner, and
        its application is unknown, or has no metadata here          owned: the references cannot be searched
        the owner exists, and no node refers to the ledger           owned: the reference may be stored a moment later,
                                                                     or in an entry, as the compacted ledger of a topic
                                                                     that a broker has loaded
        the owner does not exist                                     not owned
    otherwise                                                        not owned

Errors of the metadata store are raised. A node that cannot be decoded is reported to the caller: it may refer to any
ledger, so no ledger may be taken as not owned without asking.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.errors import BadBytes, Refused
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.owners import application, distributedlog, pulsar
from bkctl.meta.owners.base import Claim, Owner, OwnerPlugin, Reference
from bkctl.meta.store import MetadataStore
from bkctl.meta.walk import walk
from bkctl.model.ids import LEDGER_ID_MAX

BATCH: Final = 1000
"""Nodes or ledgers that are handled together."""
OWNERS_MAX: Final = 10
"""Owners that are kept of one ledger, and of each kind of one cluster."""
UNREADABLE_MAX: Final = 10
"""Nodes that cannot be decoded and are kept by name; the others are counted."""

EXISTS: Final = "from custom metadata; it exists, but no node refers to the ledger yet"
NO_METADATA: Final = "from custom metadata; its application's metadata was not found here, so its use cannot be checked"
NAMED: Final = "from custom metadata"


def plugins(pulsar_prefixes: Sequence[str], namespaces: Sequence[str] = ()) -> tuple[OwnerPlugin, ...]:
    """All plug-ins, the general one last.

    Args:
        pulsar_prefixes: paths that Pulsar's metadata are below; "" is the store's root.
        namespaces: DistributedLog namespaces besides the usual ones.
    """
    functions = (prefix + distributedlog.FUNCTIONS_NAMESPACE for prefix in pulsar_prefixes)
    return (
        pulsar.plugin(pulsar_prefixes),
        distributedlog.plugin((*distributedlog.DEFAULT_NAMESPACES, *functions, *namespaces)),
        application.PLUGIN,
    )


def claim_of(plugins: Sequence[OwnerPlugin], custom: Mapping[str, bytes]) -> Claim | None:
    """The owner that custom metadata names; None where it names none."""
    return next((found for plugin in plugins if (found := plugin.claim(custom)) is not None), None)


@dataclass
class Unreadable:
    """Nodes that should name ledgers and cannot be decoded."""

    count: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, error: BadBytes | Refused) -> None:
        """Counts one, and keeps the first messages."""
        self.count += 1
        if len(self.messages) < UNREADABLE_MAX:
            self.messages.append(error.message)


async def references(
    store: MetadataStore, plugins: Sequence[OwnerPlugin], unreadable: Unreadable
) -> AsyncIterator[Reference]:
    """Yields every reference to a ledger; one may come twice.

    Raises:
        Unavailable: the store does not answer. Refused: it may not be read.
    """
    for plugin in plugins:
        for root in plugin.roots:
            await store.sync(root)
        async for path, node in walk(store, plugin.roots, renames=plugin.renames):
            try:
                found = list(plugin.references(path, node.data))
            except (BadBytes, Refused) as error:
                unreadable.add(error)
                continue
            for reference in found:
                yield reference


@dataclass
class Found:
    """The owners of some ledgers; a ledger without one is absent. orphans: the claims of owners that do not exist."""

    owners: dict[int, list[Owner]] = field(default_factory=dict)
    orphans: dict[int, Owner] = field(default_factory=dict)
    unreadable: Unreadable = field(default_factory=Unreadable)


async def owners_of(
    store: MetadataStore,
    plugins: Sequence[OwnerPlugin],
    ledger_ids: Collection[int],
    claims: Mapping[int, Claim],
) -> Found:
    """Finds the owners of these ledgers, with one scan for all of them.

    Args:
        ledger_ids: a set, or anything else with a fast `in`.
        claims: of those whose custom metadata names an owner, see `claim_of`.
    """
    found = Found()
    async for reference in references(store, plugins, found.unreadable):
        if reference.ledger_id in ledger_ids:
            owners = found.owners.setdefault(reference.ledger_id, [])
            if reference.owner not in owners and len(owners) < OWNERS_MAX:
                owners.append(reference.owner)
    open_claims = {ledger_id: claim for ledger_id, claim in claims.items() if ledger_id not in found.owners}
    for ledger_id, owner in (await _decide(store, open_claims)).items():
        if owner is None:
            found.orphans[ledger_id] = claims[ledger_id].owner
        else:
            found.owners[ledger_id] = [owner]
    return found


async def _decide(store: MetadataStore, claims: Mapping[int, Claim]) -> dict[int, Owner | None]:
    """The owner of each ledger by its claim alone; None where it does not exist any more."""
    paths = dict.fromkeys(path for claim in claims.values() for path in (*claim.trees, *claim.paths))
    wanted = list(paths)
    existing: set[str] = set()
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        existing.update(path for path, node in zip(batch, await store.get_many(batch), strict=True) if node is not None)
    decided: dict[int, Owner | None] = {}
    for ledger_id, claim in claims.items():
        if not claim.paths:
            decided[ledger_id] = claim.owner._replace(note=NAMED)
        elif existing.isdisjoint(claim.trees):
            decided[ledger_id] = claim.owner._replace(note=NO_METADATA)
        else:
            alive = not existing.isdisjoint(claim.paths)
            decided[ledger_id] = claim.owner._replace(note=EXISTS) if alive else None
    return decided


@dataclass
class ClusterOwners:
    """How many ledgers of a cluster have an owner, by its kind, and the names of some owners of each kind."""

    ledgers: Counter[str] = field(default_factory=Counter)
    names: dict[str, list[str]] = field(default_factory=dict)
    unreadable: Unreadable = field(default_factory=Unreadable)

    def add(self, owner: Owner) -> None:
        """Counts one more ledger."""
        self.ledgers[owner.kind] += 1
        names = self.names.setdefault(owner.kind, [])
        if len(names) < OWNERS_MAX and owner.name not in names:
            names.append(owner.name)


async def owners_of_all(ledgers: LedgerStore, plugins: Sequence[OwnerPlugin]) -> ClusterOwners:
    """Counts the owners of all ledgers of a cluster; holds eight bytes a reference."""
    store, found = ledgers.store, ClusterOwners()
    referred = array("q")
    batch: list[Reference] = []
    async for reference in references(store, plugins, found.unreadable):
        if 0 <= reference.ledger_id <= LEDGER_ID_MAX:
            batch.append(reference)
        if len(batch) == BATCH:
            await _count(ledgers, batch, found, referred)
            batch = []
    await _count(ledgers, batch, found, referred)
    ordered = array("q", sorted(referred))
    async for nodes in ledgers.nodes():
        claims = {}
        for ledger_id, path, node in nodes:
            if node is None or _has(ordered, ledger_id):
                continue
            try:
                claim = claim_of(plugins, decode_metadata(node.data, source=path).custom_metadata)
            except BadBytes as error:
                found.unreadable.add(error)
                continue
            if claim is not None:
                claims[int(ledger_id)] = claim
        for owner in (await _decide(store, claims)).values():
            if owner is not None:
                found.add(owner)
    return found


def _has(ordered: array[int], ledger_id: int) -> bool:
    at = bisect_left(ordered, ledger_id)
    return at < len(ordered) and ordered[at] == ledger_id


async def _count(ledgers: LedgerStore, batch: Sequence[Reference], found: ClusterOwners, referred: array[int]) -> None:
    """Counts the references to ledgers that exist in this cluster."""
    nodes = await ledgers.store.get_many([ledgers.path(reference.ledger_id) for reference in batch]) if batch else []
    for reference, node in zip(batch, nodes, strict=True):
        if node is not None:
            found.add(reference.owner)
            referred.append(reference.ledger_id)
