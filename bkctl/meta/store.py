"""The interface of the metadata store: a tree of small nodes, versions, sessions, one-shot watches.

It is ZooKeeper's data model without ZooKeeper's client: `memory.MemoryStore` and `zookeeper.ZooKeeperStore` keep the
same contract and pass the same tests. Paths are absolute ("/ledgers/LAYOUT"), without a trailing slash.

    what happened                       error
    node, or the parent of a create     NotFound
    is not there
    create finds the node               AlreadyExists
    version is not the one given        Conflict
    delete finds children               NotEmpty (a Conflict)
    no answer in time                   Unavailable: done, not done, or yet to be done; read to learn which
    the session ended meanwhile         SessionExpired (an Unavailable); the next call uses a new session
    the store says no otherwise         ServerError, with its own number; Refused without the right to do it

An answer lost on the way is not repeated by the store, save for reads: only the caller knows what a second create,
set or delete would mean. The callbacks of watches and sessions run on the event loop, one after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING, Final, NamedTuple, NewType, Protocol, TypeAlias

from bkctl.errors import AlreadyExists, Conflict, NotFound, ServerError, UsageError

if TYPE_CHECKING:
    import asyncio

Version = NewType("Version", int)
"""The data version of a node: 0 at its creation, one more with every set."""

ANY_VERSION: Final = Version(-1)
"""The version sent by `overwrite` and `delete_any`; `set` and `delete` refuse it. In a multi only for whole trees."""

FIRST_VERSION: Final = Version(0)
NO_CHILDREN_FOR_EPHEMERALS: Final = -108  # ZooKeeper's number


class NotEmpty(Conflict):
    """A node that has children cannot be deleted."""

    kind = "not_empty"
    retriable = False


@unique
class WatchEvent(Enum):
    """Why a watch fired. LOST: the connection or the session broke, so read again and watch again."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"
    LOST = "lost"


@unique
class SessionEvent(Enum):
    """SUSPENDED: no connection, ephemeral nodes still live. EXPIRED: they are gone; a new session is CONNECTED next.

    Only EXPIRED is a reason to create ephemeral nodes again.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class Stat(NamedTuple):
    """The Stat of a node. Times are the server's; ephemeral_owner is a session id, 0 for none."""

    version: Version
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    cversion: int
    num_children: int


class Node(NamedTuple):
    """The data and the Stat of a node, read together."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    """In a multi: create this node; its parent must be there (or be created earlier in the same multi)."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """In a multi: set the data if the version is this one."""

    path: str
    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Delete:
    """In a multi: delete the node if the version is this one."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class Check:
    """In a multi: continue only if the node exists with this version."""

    path: str
    version: Version


Operation: TypeAlias = Create | Set | Delete | Check
WatchCallback: TypeAlias = Callable[[WatchEvent], None]
SessionCallback: TypeAlias = Callable[[SessionEvent], None]
Cancel: TypeAlias = Callable[[], None]


class MetadataStore(Protocol):
    """One session with the store. See the module for the errors every operation may raise."""

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes created now; changes when a session expires."""

    @property
    def where(self) -> str:
        """The store in words, for messages: its hosts."""

    async def get(self, path: str) -> Node:
        """The node's data and Stat."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The same for many nodes, in order, requests in flight together; None for those that are not there."""

    async def exists(self, path: str) -> Stat | None:
        """The node's Stat, or None."""

    async def children(self, path: str) -> list[str]:
        """The names of the node's children, sorted."""

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Creates a node and returns its path; `sequence` appends ten digits, `parents` makes missing parents.

        Parents are persistent and empty. One that vanishes meanwhile is made again.
        """

    async def set(self, path: str, data: bytes, version: Version) -> Version:
        """Replaces the data if the version is still this one; returns the new version."""

    async def overwrite(self, path: str, data: bytes) -> Version:
        """Replaces the data whatever its version: only where losing another's write is meant."""

    async def delete(self, path: str, version: Version) -> None:
        """Deletes a node that has no children, if its version is still this one."""

    async def delete_any(self, path: str) -> None:
        """Deletes a node that has no children, whatever its version."""

    async def sync(self, path: str) -> None:
        """Returns when this session sees everything written before the call."""

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Executes all of them or none; the error is that of the first that failed."""

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: at the next creation, change or deletion of the node. The node need not be there.

        The watch is set when this returns, so read after it: no change falls between.
        """

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once: when a child comes or goes, or the node is deleted. NotFound if it is not there."""

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Calls back at every change of the session, until cancelled."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted, its watches fire LOST, so that no caller waits forever.

        Every later call raises Unavailable. Idempotent.
        """


_PATH: Final = re.compile(r"/|(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


def check_path(path: str) -> str:
    """The path itself, if a store can hold it.

    Raises:
        UsageError: not absolute, a slash at the end, an empty part, `.`, `..`, or a control character.
    """
    if not _PATH.fullmatch(path):
        raise UsageError(
            f"{path!r} is not a metadata path", hint="absolute, as in /ledgers/LAYOUT, no slash at the end"
        )
    return path


def parent_of(path: str) -> str:
    """The path of the node above; that of "/a" is "/"."""
    return path.rpartition("/")[0] or "/"


def join(parent: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def refuse_any(version: int) -> None:
    """A compare-and-set needs the version that was read; without it another process's write would be lost."""
    if version < 0:
        raise UsageError(f"version {version} is not a valid node version: use overwrite or delete_any instead")


def wakes(event: asyncio.Event) -> WatchCallback:
    """A callback for a watch that sets event, for those who then read again whatever happened."""
    return lambda _: event.set()


def no_node(path: str) -> NotFound:
    """The error for a missing node, the same for every store."""
    return NotFound(f"no such node in the metadata store: {path}", path=path)


def node_exists(path: str) -> AlreadyExists:
    """The error for a create that finds the node."""
    return AlreadyExists(f"the node exists already in the metadata store: {path}", path=path)


def bad_version(path: str, version: int) -> Conflict:
    """The error for a set, delete or check whose version is not the node's."""
    return Conflict(f"{path} was changed by another client since version {version}", path=path, version=version)


def ephemeral_parent(path: str) -> ServerError:
    """The error for a create below an ephemeral node, with ZooKeeper's own number."""
    return ServerError(f"{path} is ephemeral and cannot have children", status=NO_CHILDREN_FOR_EPHEMERALS, path=path)


def not_empty(path: str) -> NotEmpty:
    """The error for a delete of a node with children."""
    return NotEmpty(f"{path} has children", path=path)
