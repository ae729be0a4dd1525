"""`ledger check`: finds the copies that bookies lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.topic.live import Live, running

ENTRIES = [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("percentage", [0, 100])
def test_a_whole_ledger_has_no_findings(live: Live, percentage: int) -> None:
    for ledger_id in (live.ledger(ENTRIES), live.ledger(ENTRIES, close=False), live.ledger([])):
        answer = live.bkctl("ledger", "check", ledger_id, "--percentage", percentage, "-o", "json")
        assert (answer.code, answer.json()["items"]) == (0, []), answer.stderr


def test_fragments_on_a_bookie_that_is_away_are_found(tmp_path: Path) -> None:
    with running(tmp_path, bookies=2) as live:
        closed, open_ = live.ledger(ENTRIES), live.ledger(ENTRIES, close=False)
        away = next(iter(live.bookies))
        live.stop_bookie(away)
        answer = live.bkctl("ledger", "check", closed, open_, "-o", "json")
        assert answer.code == 1, answer.stderr
        items = answer.json()["items"]
        assert [(item["ledger_id"], item["bad_bookies"], item["settled"]) for item in items] == [
            (closed, [away], True),
            (open_, [away], False),
        ]
        assert (items[0]["first_entry_id"], items[0]["last_entry_id"]) == (0, 4)
        assert away in items[0]["bookies"]
        assert live.bkctl("ledger", "check", closed, "-o", "name").stdout == f"{closed}\n"
        table = live.bkctl("ledger", "check", closed)
        assert (table.code, away in table.stdout) == (1, True)


def test_a_ledger_that_does_not_exist_is_an_error_or_one_of_several_warnings(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES)
    alone = live.bkctl("ledger", "check", 999_999, "-o", "json")
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (4, "", "no_such_ledger")
    some = live.bkctl("ledger", "check", 999_999, ledger_id, "-o", "json")
    assert (some.code, some.json()["items"], len(some.json()["warnings"])) == (1, [], 1)


@pytest.mark.parametrize(
    "options", [("--percentage", 101), ("--digest", "MD5"), ("--password", "a", "--password-file", "b")]
)
def test_wrong_options_are_usage_errors(live: Live, options: tuple[str | int, ...]) -> None:
    answer = live.bkctl("ledger", "check", 5, *options)
    assert (answer.code, answer.stdout) == (2, "")
