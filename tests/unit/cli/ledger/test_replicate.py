"""`ledger replicate`: copies what bookies lack to other bookies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.model.ids import BookieId
from tests.unit.cli.topic.live import Live, running

ENTRIES = [b"%d" % number for number in range(5)]


def test_a_whole_ledger_needs_nothing(live: Live) -> None:
    answer = live.bkctl("ledger", "replicate", live.ledger(ENTRIES), "--yes", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, []), answer.stderr
    assert "no copies are missing" in answer.stderr


@pytest.fixture
def reduced(tmp_path: Path) -> Iterator[tuple[Live, BookieId, int, int]]:
    """(cluster, the bookie that is away, a closed ledger, an open one); a third bookie was started later."""
    with running(tmp_path, bookies=2) as found:
        closed, open_ = found.ledger(ENTRIES), found.ledger(ENTRIES, close=False)
        away = next(iter(found.bookies))
        found.stop_bookie(away)
        found.start_bookie()
        yield found, away, closed, open_


def test_missing_copies_are_restored_after_a_confirmation(reduced: tuple[Live, BookieId, int, int]) -> None:
    live, away, closed, open_ = reduced
    replicate = ("ledger", "replicate", closed, "-o", "json")
    refused = live.bkctl(*replicate)
    assert (refused.code, refused.stdout) == (3, "")
    plan = live.bkctl(*replicate, "--dry-run").json()["plan"]
    assert plan["summary"].startswith("replicate 1 ledgers: copy the entries of 1 ledgers to other bookies")
    assert live.bkctl("ledger", "check", closed).code == 1, "a dry run copies nothing"
    done = live.bkctl(*replicate, "--yes")
    assert done.code == 0, done.stderr
    (item,) = done.json()["items"]
    assert (item["ledger_id"], item["error"]) == (closed, None)
    assert live.bkctl("ledger", "check", closed, "--percentage", 100).code == 0
    (fragment,) = live.bkctl("ledger", "fragments", closed, "-o", "json").json()["items"]
    assert sorted(fragment["bookies"]) == sorted(live.bookies)
    skipped = live.bkctl("ledger", "replicate", open_, "--yes", "-o", "json")
    assert (skipped.code, [item["ledger_id"] for item in skipped.json()["items"]]) == (1, [open_]), skipped.stderr
    assert live.bkctl("ledger", "show", open_, "-o", "json").json()["state"] == "OPEN"
    fenced = live.bkctl("ledger", "replicate", open_, "--fence-open", "--yes", "-o", "json")
    assert fenced.code == 0, fenced.stderr
    assert live.bkctl("ledger", "show", open_, "-o", "json").json()["state"] == "CLOSED"
    assert away not in live.bkctl("ledger", "fragments", open_).stdout


def test_a_ledger_that_does_not_exist_is_not_found_or_one_of_several_errors(live: Live) -> None:
    alone = live.bkctl("ledger", "replicate", 999_999, "--yes", "-o", "json")
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (4, "", "no_such_ledger")
    some = live.bkctl("ledger", "replicate", 999_999, live.ledger(ENTRIES), "--yes", "-o", "json")
    assert some.code == 1, some.stderr
    assert [(item["ledger_id"], item["error"] is None) for item in some.json()["items"]] == [(999_999, False)]


@pytest.mark.parametrize(
    "options", [("--bookie", "no bookie"), ("--percentage", -1), ("--digest", "MD5"), ("--rate", "fast")]
)
def test_wrong_options_are_usage_errors(live: Live, options: tuple[str | int, ...]) -> None:
    answer = live.bkctl("ledger", "replicate", 5, *options, "--yes")
    assert (answer.code, answer.stdout) == (2, "")
