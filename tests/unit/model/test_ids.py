"""Ids of ledgers and bookies: which texts are valid."""

from __future__ import annotations

import pytest

from bkctl.errors import UsageError
from bkctl.model.ids import parse_bookie_id, parse_ledger_id


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("0x1F", 31), (str(2**63 - 1), 2**63 - 1)])
def test_decimal_and_hexadecimal_ledger_ids_are_parsed(text: str, value: int) -> None:
    assert parse_ledger_id(text) == value


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x", "abc", str(2**63)])
def test_invalid_ledger_ids_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ledger_id(text)


@pytest.mark.parametrize("text", ["", "readonly", "ReadOnly", "a b", "a/b", "a%b", ".", ".."])
def test_invalid_bookie_ids_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bookie_id(text)
    assert parse_bookie_id("10.0.0.1:3181") == "10.0.0.1:3181"
