"""The interface of an owner plug-in.

A plug-in answers two questions, both from bytes alone:

    references(path, data)   which ledgers does this node name? Called for each node at and below the plug-in's roots.
    claim(custom_metadata)   which owner does a ledger's custom metadata name? None if it names no owner of this kind.

A reference proves an owner. A claim alone does not: the owner may have been deleted, or may be storing its reference at
this moment. `bkctl.meta.owners.search` decides between the two by the nodes that the claim names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

TOPIC = "topic"
CURSOR = "cursor"
SCHEMA = "schema"
COMPACTION = "compaction"
STREAM = "stream"
APPLICATION = "application"

KIND_WORDS = {
    TOPIC: "topic",
    CURSOR: "cursor",
    SCHEMA: "the schema of",
    COMPACTION: "the compacted topic",
    STREAM: "DistributedLog stream",
    APPLICATION: "application",
}


class Owner(NamedTuple):
    """An application object that a ledger belongs to.

    Args:
        kind: topic, cursor, schema, compaction, stream or application.
        name: of the object, as its application's tools show it; a cursor is TOPIC/CURSOR, encoded as in its path.
        path: the node that names the ledger; empty where only custom metadata names the owner.
        note: why the owner is assumed, where no node names the ledger.
    """

    kind: str
    name: str
    path: str = ""
    note: str = ""

    def __str__(self) -> str:
        return f"{KIND_WORDS[self.kind]} {self.name}" + (f" ({self.note})" if self.note else "")


class Reference(NamedTuple):
    """A node names this ledger."""

    ledger_id: int
    owner: Owner


class Claim(NamedTuple):
    """The owner that a ledger's custom metadata names.

    Args:
        owner: as named.
        trees: one of these nodes exists where the application keeps its metadata in this store; empty where unknown.
        paths: one of these nodes exists as long as the owner does; empty where unknown.
    """

    owner: Owner
    trees: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class OwnerPlugin(NamedTuple):
    """One kind of application.

    Args:
        name: for messages.
        roots: absolute paths; the nodes at and below them are read. A root need not exist.
        references: the ledgers that a node names. Raises BadBytes or Refused where the node should name ledgers and
            cannot be decoded: then its owners are unknown, and nothing may be deleted as unowned.
        claim: the owner that custom metadata names.
        renames: true for a directory whose children the application renames; see `bkctl.meta.walk`.
    """

    name: str
    roots: tuple[str, ...]
    references: Callable[[str, bytes], Iterable[Reference]]
    claim: Callable[[Mapping[str, bytes]], Claim | None]
    renames: Callable[[str], bool] = lambda _: False


def text_of(value: bytes) -> str:
    """A value of custom metadata as text."""
    return value.decode("utf-8", "backslashreplace")
