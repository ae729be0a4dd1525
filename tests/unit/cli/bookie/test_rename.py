"""`bkctl bookie rename`: the plan, the change of every ledger, the cookie, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.job_state import JobState

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryTree
from bkctl.model.ids import EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.unit.cli.bookie.bookie_tree import DOWN, LIVE, NEW, OTHER, ROOT, UNKNOWN, Run, on

RENAME = ("bookie", "rename", "--from", DOWN, "--to", NEW)


def test_a_rename_needs_confirmation_and_a_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    refused = run(*RENAME)
    assert (refused.code, refused.stdout) == (3, "")
    plan = run(*RENAME, "--rate", 100, "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"rename {DOWN} to {NEW} in 2 ledgers"
    assert any("ledger 7 is skipped: it is open" in step for step in plan["steps"])
    assert any("bookieHost in current/VERSION" in step for step in plan["steps"])
    assert not (tmp_path / "state").exists()


def test_closed_ledgers_are_renamed_and_open_ones_only_with_open_too(
    tree: MemoryTree, run: Run, tmp_path: Path
) -> None:
    answer = run(*RENAME, "--move-cookie", "--yes", "-o", "json")
    assert answer.code == 1
    assert [(i["ledger_id"], i["segments"], i["error"] is None) for i in answer.json()["items"]] == [
        (3, 1, True),
        (5, 1, True),
        (7, 0, False),
    ]
    assert "its cookie stays" in answer.stderr
    kept = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("*")}
    assert len(kept) > 1
    assert set(kept.values()) == {0}, "a job's state is readable by its owner only"
    answer = run(*RENAME, "--move-cookie", "--open-too", "--yes", "-o", "json")
    assert (answer.code, [i["ledger_id"] for i in answer.json()["items"]]) == (0, [7])
    assert on(tree, lambda store: BookieRegistry(store, ROOT).known()) == {LIVE, OTHER, NEW}
    assert run(*RENAME, "--yes", "-o", "json").json()["items"] == []


def test_the_cookie_stays_without_move_cookie(tree: MemoryTree, run: Run) -> None:
    assert run(*RENAME, "--open-too", "--yes").code == 0
    assert on(tree, lambda store: BookieRegistry(store, ROOT).known()) == {LIVE, OTHER, DOWN}
    metadata, _ = on(tree, lambda store: LedgerStore(store, ROOT).read(3))
    assert metadata.ensembles[0].bookies == (NEW, OTHER)


def test_a_cookie_that_was_moved_already_is_no_error(run: Run) -> None:
    assert run(*RENAME, "--open-too", "--move-cookie", "--yes").code == 0
    again = run(*RENAME, "--move-cookie", "--yes")
    assert (again.code, f"{NEW} has its cookie already" in again.stderr) == (0, True)


def test_a_ledger_that_names_both_bookies_is_skipped(tree: MemoryTree, run: Run) -> None:
    ledger = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (DOWN, NEW)),)).closed_at(9, 1000)
    on(tree, lambda store: LedgerStore(store, ROOT).create(ledger, 9))
    items = run(*RENAME, "--open-too", "--yes", "-o", "json").json()["items"]
    (error,) = [item["error"] for item in items if item["ledger_id"] == 9]
    assert NEW in error


def test_many_ledgers_are_summed_up_in_the_plan(tree: MemoryTree, run: Run) -> None:
    async def fill(store: object) -> None:
        ledgers = LedgerStore(store, ROOT)  # type: ignore[arg-type]
        ledger = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (DOWN,)),))
        for ledger_id in range(100, 123):
            await ledgers.create(ledger.closed_at(9, 1000), ledger_id)
        for ledger_id in range(200, 222):
            await ledgers.create(ledger, ledger_id)

    on(tree, fill)
    steps = run(*RENAME, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert "and of 5 more ledgers" in steps
    assert "and 3 more ledgers are skipped" in steps
    steps = run(*RENAME, "--open-too", "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert "23 of them are open: a writer that is still running loses its ledger" in steps


def test_the_error_of_an_interrupted_run_is_kept(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    state = JobState("bookie rename", "memory:2181/ledgers", tuple(sorted((DOWN, NEW))), 0, cursor=3)
    state.failed[3] = "the store was away"
    file.write_bytes(state.encode())
    answer = run(*RENAME, "--state", file, "--yes", "-o", "json")
    errors = {item["ledger_id"]: item["error"] for item in answer.json()["items"]}
    assert (answer.code, errors[3], errors[5]) == (1, "the store was away", None)
    assert "resuming after ledger 3" in answer.stderr
    assert run(*RENAME, "--state", file, "--open-too", "--yes").code == 0, "the next run scans all ledgers"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [(LIVE, NEW, 3), (DOWN, DOWN, 2), (DOWN, "no name", 2), ("no name", NEW, 2)],
    ids=["registered", "same", "bad new name", "bad old name"],
)
def test_a_rename_that_is_not_possible_is_one_error(run: Run, old: str, new: str, code: int) -> None:
    answer = run("bookie", "rename", "--from", old, "--to", new, "--yes")
    assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (code, "", 1)


def test_a_registered_bookie_is_renamed_with_while_registered(run: Run) -> None:
    rename = ("bookie", "rename", "--from", OTHER, "--to", NEW, "--while-registered", "--open-too", "--yes")
    answer = run(*rename, "-o", "json")
    assert (answer.code, [item["ledger_id"] for item in answer.json()["items"]]) == (0, [3, 5, 7])


def test_an_unknown_bookie_is_not_found_unless_it_was_renamed_before(run: Run) -> None:
    unknown = ("bookie", "rename", "--from", UNKNOWN, "--to", NEW)
    for mode in ("--yes", "--dry-run"):
        answer = run(*unknown, mode, "-o", "json")
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")
    assert run(*RENAME, "--open-too", "--move-cookie", "--yes").code == 0
    again = run(*RENAME, "--yes", "-o", "json")
    assert (again.code, again.json()["items"], "already renamed at" in again.stderr) == (0, [], True)
    assert run(*RENAME, "--restart", "--yes").code == 4, "the state that says so is discarded"
