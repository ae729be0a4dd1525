"""The error tree: every class has a kind, an exit code of the contract, and says enough."""

from __future__ import annotations

from bkctl import errors
from bkctl.errors import BadBytes, BkctlError, Corrupt, Exit, TornTail

TREE = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BkctlError)]


def test_kinds_are_unique() -> None:
    kinds = [c.kind for c in TREE]
    assert len(set(kinds)) == len(kinds)


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {c.__name__: int(c.exit) for c in TREE if c.__mro__[1] is BkctlError} == {
        "UsageError": 2, "Refused": 3, "NotFound": 4, "Conflict": 5, "Unavailable": 6, "ServerError": 7, "BadBytes": 8,
    }  # fmt: skip
    assert (Exit.OK, Exit.FINDINGS, Exit.BUG, Exit.INTERRUPTED) == (0, 1, 70, 130)


def test_bad_bytes_say_where_what_was_expected_and_found() -> None:
    error = Corrupt("not an entry log", source="0.log", offset=0, expected=b"BKLO", found=b"XKLO")
    assert str(error) == "0.log at 0x0: not an entry log: expected b'BKLO', found b'XKLO'"
    assert (error.source, error.offset) == ("0.log", 0)
    assert issubclass(TornTail, BadBytes)


def test_long_bytes_are_cut_in_words_and_kept_whole_in_the_attribute() -> None:
    error = Corrupt("text", source="x", offset=16, expected="a key", found=b"k" * 1000)
    assert len(str(error)) < 120
    assert error.found == b"k" * 1000
