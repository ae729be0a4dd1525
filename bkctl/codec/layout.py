"""The two nodes that say what a cluster is: LAYOUT, how ledgers are laid out, and INSTANCEID, which cluster it is.

    LAYOUT       <format> LF <name> ":" <manager version>      no LF at the end; one is tolerated
    format 2     name is the Java class of the ledger manager's factory; the only format written
    format 1     name is "flat" or "hierarchical"
    INSTANCEID   a random UUID in canonical text, 36 characters

The manager version is 1 for every manager; anything else stops Java too.
Source: LedgerLayout.java, AbstractZkLedgerManagerFactory.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from bkctl.errors import Corrupt

FORMAT_CURRENT: Final = 2
MANAGER_VERSION: Final = 1
_PACKAGE: Final = "org.apache.bookkeeper.meta."


@unique
class LedgerManager(Enum):
    """The mapping of ids to paths. The value is the part after `zk+` in a metadata URI (legacy has none)."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"
    LEGACY_HIERARCHICAL = "legacyhierarchical"

    @property
    def java_class(self) -> str:
        """The factory class that LAYOUT names."""
        return _PACKAGE + _FACTORIES[self]


_FACTORIES: Final = {
    LedgerManager.FLAT: "FlatLedgerManagerFactory",
    LedgerManager.HIERARCHICAL: "HierarchicalLedgerManagerFactory",
    LedgerManager.LONG_HIERARCHICAL: "LongHierarchicalLedgerManagerFactory",
    LedgerManager.LEGACY_HIERARCHICAL: "LegacyHierarchicalLedgerManagerFactory",
}
_OF_CLASS: Final = {manager.java_class: manager for manager in LedgerManager}
_OF_OLD_NAME: Final = {"flat": LedgerManager.FLAT, "hierarchical": LedgerManager.LEGACY_HIERARCHICAL}
_OLD_NAMES: Final = {manager: name for name, manager in _OF_OLD_NAME.items()}


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of LAYOUT. Format 1 is read, and never written."""

    manager: LedgerManager = LedgerManager.HIERARCHICAL
    format: int = FORMAT_CURRENT


def encode_layout(layout: Layout) -> bytes:
    """The bytes of LAYOUT in the layout's own format."""
    name = _OLD_NAMES[layout.manager] if layout.format == 1 else layout.manager.java_class
    return f"{layout.format}\n{name}:{MANAGER_VERSION}".encode("ascii")


_LAYOUT: Final = re.compile(rb"([0-9]{1,9})\n([^\n:]+):([0-9]{1,9})\n?")


def decode_layout(data: bytes, *, source: str) -> Layout:
    """Reads the LAYOUT node: how the ledgers lie below the root.

    Raises:
        Corrupt: not a layout, or an unknown format, manager or manager version.
    """
    match = _LAYOUT.fullmatch(data)
    if match is None:
        raise Corrupt("not a layout", source=source, offset=0, expected="format, manager:version", found=bytes(data))
    format_, name, version = int(match[1]), match[2].decode("latin-1"), int(match[3])
    if format_ not in (1, FORMAT_CURRENT):
        raise Corrupt("layout format", source=source, offset=0, expected="1 or 2", found=format_)
    if version != MANAGER_VERSION:
        at = match.start(3)
        raise Corrupt("manager version", source=source, offset=at, expected=MANAGER_VERSION, found=version)
    manager = (_OF_OLD_NAME if format_ == 1 else _OF_CLASS).get(name)
    if manager is None:
        raise Corrupt("ledger manager", source=source, offset=match.start(2), expected="a known manager", found=name)
    return Layout(manager, format_)


_UUID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def encode_instance_id(instance_id: str) -> bytes:
    """The bytes of INSTANCEID."""
    return instance_id.encode("utf-8")


def decode_instance_id(data: bytes, *, source: str) -> str:
    """Reads INSTANCEID; Java accepts any text; only text that is not a UUID is rejected.

    Raises:
        Corrupt: not a UUID.
    """
    if not _UUID.fullmatch(data.lower()):
        raise Corrupt("instance id", source=source, offset=0, expected="a UUID", found=bytes(data))
    return data.decode("ascii")
