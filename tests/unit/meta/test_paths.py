"""Ids as paths and back, in every layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.layout import LedgerManager
from bkctl.errors import UsageError
from bkctl.meta.paths import (
    LONG_TREE,
    SHORT_TREE,
    flat_ledger,
    holds_ledgers,
    is_special,
    ledger_path,
    parse_ledger_path,
)

FLAT, HIERARCHICAL, LONG, LEGACY = (
    LedgerManager.FLAT,
    LedgerManager.HIERARCHICAL,
    LedgerManager.LONG_HIERARCHICAL,
    LedgerManager.LEGACY_HIERARCHICAL,
)


@pytest.mark.parametrize(
    ("ledger_id", "flat", "hierarchical", "long"),
    [
        (0, "L0000000000", "00/0000/L0000", "000/0000/0000/0000/L0000"),
        (1, "L0000000001", "00/0000/L0001", "000/0000/0000/0000/L0001"),
        (12345, "L0000012345", "00/0001/L2345", "000/0000/0000/0001/L2345"),
        (2147483646, "L2147483646", "21/4748/L3646", "000/0000/0021/4748/L3646"),
        (2147483647, "L2147483647", "000/0000/0021/4748/L3647", "000/0000/0021/4748/L3647"),
        (2147483648, "L2147483648", "000/0000/0021/4748/L3648", "000/0000/0021/4748/L3648"),
        (4294967296, "L4294967296", "000/0000/0042/9496/L7296", "000/0000/0042/9496/L7296"),
        (2**63 - 1, "L9223372036854775807", "922/3372/0368/5477/L5807", "922/3372/0368/5477/L5807"),
    ],
)
def test_worked_examples(ledger_id: int, flat: str, hierarchical: str, long: str) -> None:
    assert ledger_path("/ledgers", FLAT, ledger_id) == f"/ledgers/{flat}"
    assert ledger_path("/ledgers", HIERARCHICAL, ledger_id) == f"/ledgers/{hierarchical}"
    assert ledger_path("/ledgers", LONG, ledger_id) == f"/ledgers/{long}"
    for path in (flat, hierarchical, long):
        assert parse_ledger_path("/ledgers", f"/ledgers/{path}") == ledger_id


def test_legacy_has_no_place_for_long_ids() -> None:
    assert ledger_path("/l", LEGACY, 2147483646) == "/l/21/4748/L3646"
    with pytest.raises(UsageError, match="legacy"):
        ledger_path("/l", LEGACY, 2147483647)
    for ledger_id in (-1, 2**63):
        with pytest.raises(UsageError, match="outside"):
            ledger_path("/l", HIERARCHICAL, ledger_id)


@given(st.integers(0, 2**63 - 1), st.sampled_from([FLAT, HIERARCHICAL, LONG]))
def test_round_trip(ledger_id: int, manager: LedgerManager) -> None:
    path = ledger_path("/a/b", manager, ledger_id)
    assert parse_ledger_path("/a/b", path) == ledger_id
    assert holds_ledgers(manager, path.split("/")[3])


@pytest.mark.parametrize(
    "path",
    [
        "/ledgers",
        "/other/00/0000/L0000",
        "/ledgers/LAYOUT",
        "/ledgers/00/0000",
        "/ledgers/00/0000/0000",
        "/ledgers/0/0000/L0000",
        "/ledgers/00/0000/L00",
        "/ledgers/00/00x0/L0000",
        "/ledgers/L123",
        "/ledgers/L9999999999999999999",
        "/ledgers/999/9999/9999/9999/L9999",
        "/ledgers/underreplication/ledgers/0000/0000/0000/0000/urL0000000000",
        "/ledgers/00/٣٣٣٣/L0000",
    ],
)
def test_what_is_no_ledger(path: str) -> None:
    assert parse_ledger_path("/ledgers", path) is None


def test_children_of_the_root() -> None:
    names = ["00", "000", "L0000000001", "ID-0000000003", "idgen", "idgen-long", "cookies", "foreign"]
    assert [holds_ledgers(HIERARCHICAL, n) for n in names] == [True, True] + [False] * 6
    assert [holds_ledgers(LONG, n) for n in names] == [False, True] + [False] * 6
    assert [holds_ledgers(FLAT, n) for n in names] == [False, False, True] + [False] * 5
    assert [is_special(n) for n in names] == [False] * 3 + [True] * 4 + [False]
    assert (SHORT_TREE.width, LONG_TREE.width, flat_ledger("L12")) == (10, 19, None)
