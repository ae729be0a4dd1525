"""`ledger recover`: recovers and closes ledgers; `--explain` and `--declare-lost`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.topic.live import Live, running

ENTRIES = [b"0", b"1", b"2"]


def test_an_open_ledger_is_closed_after_its_last_entry(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES, close=False)
    done = live.bkctl("ledger", "recover", ledger_id, "--yes", "-o", "json")
    assert done.code == 0, done.stderr
    item = done.json()
    assert (item["state_before"], item["state"], item["closed_by_us"]) == ("OPEN", "CLOSED", True)
    assert (item["last_entry_id"], item["length"]) == (2, 3)
    assert item["fencing_answers"].keys() <= {str(bookie) for bookie in live.bookies}
    again = live.bkctl("ledger", "recover", ledger_id, "--yes", "-o", "json").json()
    assert (again["state_before"], again["closed_by_us"], again["last_confirmed_found"]) == ("CLOSED", False, None)


def test_the_plan_says_what_happens_to_each_ledger(live: Live) -> None:
    open_, closed = live.ledger(ENTRIES, close=False), live.ledger(ENTRIES)
    plan = live.bkctl("ledger", "recover", open_, closed, "--dry-run", "-o", "json").json()["plan"]
    assert plan["steps"][0].startswith(f"fence ledger {open_} on ")
    assert plan["steps"][1] == f"ledger {closed} is closed at entry 2: nothing to do"
    refused = live.bkctl("ledger", "recover", open_)
    assert (refused.code, refused.stdout) == (3, "")
    assert live.bkctl("ledger", "show", open_, "-o", "json").json()["state"] == "OPEN"


def test_the_remaining_ledgers_are_recovered_when_one_is_missing(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES, close=False)
    some = live.bkctl("ledger", "recover", "-", "--yes", "-o", "json", stdin=f"999999\n{ledger_id}\n".encode())
    assert (some.code, [item["state"] for item in some.json()["items"]]) == (1, ["CLOSED"])
    assert ["999999" in warning for warning in some.json()["warnings"]] == [True]
    assert live.bkctl("ledger", "recover", 999_999, "--yes").code == 4


def test_explain_shows_the_end_and_changes_nothing(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES, close=False)
    found = live.bkctl("ledger", "recover", ledger_id, "--explain", "-o", "json")
    assert found.code == 0, found.stderr
    item = found.json()
    assert (item["can_recover"], item["could_lose"], item["closes_at"], item["waits_for"]) == (True, False, 2, [])
    assert [row["registered"] for row in item["bookies"]] == [True, True]
    shown = live.bkctl("ledger", "show", ledger_id, "-o", "json").json()
    assert (shown["state"], shown["metadata_version"]) == ("OPEN", 0)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--declare-lost", "10.9.9.9:3181", "--dry-run"), 4, "does not name bookie 10.9.9.9:3181"),
        (("--declare-lost", "10.9.9.9:3181", "--yes"), 2, "--confirm-lost"),
        (("--declare-lost", "no bookie", "--yes"), 2, "no bookie"),
        (("--digest", "MD5", "--yes"), 2, "is not a valid digest type"),
    ],
)
def test_wrong_options_print_nothing_on_stdout(live: Live, options: tuple[str, ...], code: int, words: str) -> None:
    answer = live.bkctl("ledger", "recover", live.ledger(ENTRIES, close=False), *options)
    assert (answer.code, answer.stdout) == (code, "")
    assert words in answer.stderr


def test_a_registered_bookie_cannot_be_declared_lost(live: Live) -> None:
    bookie = next(iter(live.bookies))
    lost = ("--declare-lost", bookie, "--confirm-lost", bookie, "--yes", "-o", "json")
    answer = live.bkctl("ledger", "recover", live.ledger(ENTRIES, close=False), *lost)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (3, "", "refused")


def test_a_ledger_waits_for_a_bookie_that_is_away_until_it_is_declared_lost(tmp_path: Path) -> None:
    with running(tmp_path, bookies=2) as live:
        ledger_id = live.ledger(ENTRIES, close=False, ack_quorum_size=1)
        lost = next(iter(live.bookies))
        live.stop_bookie(lost)
        explained = live.bkctl("ledger", "recover", ledger_id, "--explain", "-o", "json")
        assert (explained.code, explained.json()["can_recover"]) == (1, False), explained.stderr
        assert explained.json()["waits_for"] == [lost]
        waiting = live.bkctl("ledger", "recover", ledger_id, "--yes", "-o", "json")
        assert (waiting.code, waiting.stdout) == (6, "")
        declared = ("ledger", "recover", ledger_id, "--declare-lost", lost)
        plan = live.bkctl(*declared, "--dry-run", "-o", "json").json()["plan"]
        assert plan["summary"].endswith(f"with {lost} treated as permanently lost")
        done = live.bkctl(*declared, "--confirm-lost", lost, "--yes", "-o", "json")
        assert (done.code, done.json()["last_entry_id"]) == (0, 2), done.stderr
