"""The form of ledgers and fragments in `bkctl ledger`."""

from __future__ import annotations

import pytest

from bkctl.cli.ledger._items import check_entry, digest_word, fragment_items, holders, is_one, ledger_item, parse_digest
from bkctl.errors import NotFound, UsageError
from bkctl.meta.ledgers import LedgerRecord
from bkctl.meta.store import Version
from bkctl.model.ids import LedgerId
from bkctl.model.ledger import DigestType
from tests.unit.cli.ledger.metadata import CLOSED, OPEN


@pytest.mark.parametrize("digest", list(DigestType))
def test_a_digest_is_read_by_the_name_it_is_shown_with(digest: DigestType) -> None:
    word = digest_word(digest)
    assert word is not None
    assert parse_digest(word) is parse_digest(word.lower()) is digest


def test_hmac_is_an_alias_of_mac_and_other_words_are_usage_errors() -> None:
    assert parse_digest("hmac") is DigestType.HMAC
    assert digest_word(None) is None
    with pytest.raises(UsageError, match="is not a valid digest type") as caught:
        parse_digest("SHA1")
    assert caught.value.hint == "CRC32, MAC, CRC32C, DUMMY"


def test_the_password_and_the_end_of_an_open_ledger_are_null() -> None:
    closed = LedgerRecord(LedgerId(7), CLOSED, Version(3), 5)
    item = ledger_item(closed)
    assert (item["password"], item["length"], item["last_entry_id"]) == (None, 2500, 24)
    assert (item["metadata_version"], item["ctime_ms"]) == (3, 5)
    assert ledger_item(closed, show_password=True)["password"] == b"s3cret"
    item = ledger_item(LedgerRecord(LedgerId(8), OPEN, Version(0), None))
    assert (item["length"], item["last_entry_id"], item["ctime"]) == (None, None, None)


def test_fragments_end_where_the_next_one_begins() -> None:
    items = fragment_items(LedgerId(7), CLOSED)
    assert [(i["first_entry_id"], i["last_entry_id"], i["entries"]) for i in items] == [(0, 9, 10), (10, 24, 15)]
    (item,) = fragment_items(LedgerId(8), OPEN)
    assert (item["last_entry_id"], item["entries"]) == (None, None)
    empty = fragment_items(LedgerId(7), OPEN.closed_at(-1, 0))
    assert [(i["last_entry_id"], i["entries"]) for i in empty] == [(-1, 0)]


def test_the_holders_of_an_entry_are_its_write_set_in_the_order_of_reads() -> None:
    assert holders(CLOSED, 2) == ["b2:3181", "b0:3181"]
    assert holders(CLOSED, 10) == ["b1:3181", "b2:3181"]


def test_an_entry_before_the_start_or_after_the_end_is_an_error() -> None:
    check_entry(CLOSED, 7, 24)
    check_entry(OPEN, 8, 10**9)
    with pytest.raises(UsageError, match="-1 is negative"):
        check_entry(OPEN, 8, -1)
    with pytest.raises(NotFound, match="ledger 7 ends at entry 24"):
        check_entry(CLOSED, 7, 25)


@pytest.mark.parametrize(("names", "one"), [(["5"], True), (["5", "6"], False), (["-"], False), (["@f"], False)])
def test_exactly_one_name_gives_an_item_instead_of_a_list(names: list[str], one: bool) -> None:
    assert is_one(names) is one
