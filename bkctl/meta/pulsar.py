"""The metadata of a Pulsar cluster: managed ledgers, namespaces and topics on one session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.topics import TopicStore

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore


@dataclass(slots=True)
class Stores:
    """The stores of a cluster's metadata."""

    store: MetadataStore
    ledgers: ManagedLedgerStore
    namespaces: NamespaceStore
    topics: TopicStore

    @classmethod
    def of(cls, store: MetadataStore) -> Stores:
        """Returns all stores on one session."""
        return cls(store, ManagedLedgerStore(store), NamespaceStore(store), TopicStore(store))
