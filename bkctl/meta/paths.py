"""Paths of the metadata tree: the names below the ledgers root, and ledger ids as paths.

    manager            id 12345                       id 4294967296
    flat               L0000012345                    L4294967296
    hierarchical       00/0001/L2345                  000/0000/0042/9496/L7296
    longhierarchical   000/0000/0000/0001/L2345       000/0000/0042/9496/L7296
    legacyhierarchical 00/0001/L2345                  ids above 2^31 - 1 are not supported

`hierarchical` is two trees: ids below 2147483647 (not 2^31) have ten digits split 2-4-4, all others nineteen split
3-4-4-4-4. Source: StringUtils.java, FlatLedgerManager.java, HierarchicalLedgerManager.java, and its two relatives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bkctl.codec.layout import LedgerManager
from bkctl.errors import UsageError
from bkctl.model.ids import LEDGER_ID_MAX, LedgerId

SHORT_ID_END: Final = 2**31 - 1
"""Ids from here on are long: Java compares with Integer.MAX_VALUE, exclusive."""

LAYOUT: Final = "LAYOUT"
INSTANCE_ID: Final = "INSTANCEID"
AVAILABLE: Final = "available"
READ_ONLY: Final = "readonly"
COOKIES: Final = "cookies"
UNDERREPLICATION: Final = "underreplication"
ID_GENERATOR: Final = "idgen"
LONG_ID_GENERATOR: Final = "idgen-long"
ID_PREFIX: Final = "ID-"
HIGH_PREFIX: Final = "HOB-"

SPECIAL: Final = frozenset((AVAILABLE, COOKIES, LAYOUT, INSTANCE_ID, UNDERREPLICATION, ID_GENERATOR, LONG_ID_GENERATOR))
"""Children of the root that hold no ledgers; so do those that start with ID_PREFIX."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One way to split ids: the number of digits of each path part; the last part has an L before it."""

    digits: tuple[int, ...]

    @property
    def width(self) -> int:
        """Digits of an id, all parts together."""
        return sum(self.digits)

    def parts(self, ledger_id: int) -> list[str]:
        """The path parts of an id, below the root."""
        text = f"{ledger_id:0{self.width}d}"
        parts, start = [], 0
        for count in self.digits[:-1]:
            parts.append(text[start : start + count])
            start += count
        return [*parts, f"L{text[start:]}"]

    def is_part(self, level: int, name: str) -> bool:
        """True if name can be the directory at this level (0 is just below the root)."""
        return len(name) == self.digits[level] and name.isascii() and name.isdigit()

    def ledger(self, parts: Sequence[str]) -> LedgerId | None:
        """The id that these parts spell, or None."""
        text = "".join(parts[:-1]) + parts[-1].removeprefix("L")
        right = len(parts) == len(self.digits) and all(self.is_part(i, p) for i, p in enumerate(parts[:-1]))
        if not right or not _LEAF.fullmatch(parts[-1]) or len(parts[-1]) != self.digits[-1] + 1:
            return None
        return LedgerId(int(text)) if int(text) <= LEDGER_ID_MAX else None


_LEAF: Final = re.compile(r"L[0-9]+")
SHORT_TREE: Final = Tree((2, 4, 4))
LONG_TREE: Final = Tree((3, 4, 4, 4, 4))
_FLAT_LEAF: Final = re.compile(r"L([0-9]{10,19})")
_IN_TREE: Final = re.compile(
    "|".join(
        "/".join(f"([0-9]{{{count}}})" for count in tree.digits[:-1]) + f"/L([0-9]{{{tree.digits[-1]}}})"
        for tree in (SHORT_TREE, LONG_TREE)
    )
)
"""A ledger's path below the root in either tree: one match instead of a test of each part."""

TREES: Final = {
    LedgerManager.FLAT: (),
    LedgerManager.HIERARCHICAL: (SHORT_TREE, LONG_TREE),
    LedgerManager.LONG_HIERARCHICAL: (LONG_TREE,),
    LedgerManager.LEGACY_HIERARCHICAL: (SHORT_TREE,),
}
"""The trees of a manager, in the order they are listed, which is that of the ids."""


def ledger_path(root: str, manager: LedgerManager, ledger_id: int) -> str:
    """The path of a ledger's node.

    Raises:
        UsageError: the manager does not support the id.
    """
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {ledger_id} is outside 0..{LEDGER_ID_MAX}")
    if manager is LedgerManager.FLAT:
        return f"{root}/L{ledger_id:010d}"
    short = ledger_id < SHORT_ID_END
    if manager is LedgerManager.LEGACY_HIERARCHICAL and not short:
        raise UsageError(f"ledger id {ledger_id}: the legacy layout ends at {SHORT_ID_END - 1}")
    tree = SHORT_TREE if short and manager is not LedgerManager.LONG_HIERARCHICAL else LONG_TREE
    return "/".join((root, *tree.parts(ledger_id)))


def parse_ledger_path(root: str, path: str) -> LedgerId | None:
    """The ledger that a node belongs to, whatever the manager; None if it is not a ledger's node."""
    if not path.startswith(root + "/"):
        return None
    name = path[len(root) + 1 :]
    if "/" not in name:
        return flat_ledger(name)
    match = _IN_TREE.fullmatch(name)
    ledger_id = -1 if match is None else int("".join(filter(None, match.groups())))
    return LedgerId(ledger_id) if 0 <= ledger_id <= LEDGER_ID_MAX else None


def flat_ledger(name: str) -> LedgerId | None:
    """The ledger that a child of the root belongs to in the flat layout, or None."""
    match = _FLAT_LEAF.fullmatch(name)
    return LedgerId(int(match[1])) if match and int(match[1]) <= LEDGER_ID_MAX else None


def holds_ledgers(manager: LedgerManager, name: str) -> bool:
    """True if a child of the root is a ledger, or the top of a tree of ledgers."""
    if manager is LedgerManager.FLAT:
        return flat_ledger(name) is not None
    return any(tree.is_part(0, name) for tree in TREES[manager])


def is_special(name: str) -> bool:
    """True for a child of the root that has a name of its own and no ledgers in it."""
    return name in SPECIAL or name.startswith(ID_PREFIX)
