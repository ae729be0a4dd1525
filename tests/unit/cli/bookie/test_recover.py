"""`bkctl bookie recover`: the plan, wrong input, and entries that are copied between real bookies."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.drain import DrainClaim, DrainClaims

from bkctl.cli.bookie import recover
from bkctl.cli.jobs import JobArguments
from bkctl.errors import Exit
from bkctl.meta.memory import MemoryTree
from bkctl.model.ids import BookieId
from tests.unit.cli.bookie.bookie_tree import DOWN, LIVE, OTHER, ROOT, UNKNOWN, Run, on
from tests.unit.cli.bookie.live import live_bookies


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (4, "not_found", (UNKNOWN,)),
        (4, "not_found", (DOWN, "--to", UNKNOWN)),
        (6, "unavailable", (LIVE, "--to", DOWN)),
        (2, "usage", (DOWN, "--to", DOWN)),
        (2, "usage", (DOWN, "--to", "no bookie")),
        (4, "no_such_ledger", (DOWN, "--ledger", 999)),
        (2, "usage", (DOWN, "--rate", "-5")),
        (3, "refused", (DOWN, "--state", "/dev/null/job.json")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_one_error(run: Run, code: int, kind: str, words: tuple[str | int, ...]) -> None:
    answer = run("bookie", "recover", *words, "--yes", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)
    assert "Traceback" not in answer.stderr
    assert "Errno" not in answer.stderr


def test_a_recovery_needs_confirmation_and_a_dry_run_writes_nothing(run: Run, tmp_path: Path) -> None:
    refused = run("bookie", "recover", DOWN)
    assert (refused.code, refused.stdout) == (3, "")
    assert run("bookie", "recover", DOWN, "--dry-run").code == 0
    assert not (tmp_path / "state").exists()


def test_the_plan_names_sources_targets_sizes_and_open_ledgers(run: Run) -> None:
    plan = run("bookie", "recover", DOWN, "--rate", "1kB", "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"].startswith(f"recover {DOWN}: copy the entries of 3 ledgers to other bookies, 1 of them open")
    words = "\n".join(plan["steps"])
    assert f"ledger 3: 1 fragments, about 10 entries: {DOWN} → {LIVE}" in words
    assert "ledger 7: fence and close it" in words
    assert f"read from {OTHER} (2.0 KiB)" in words
    assert f"copy to {LIVE} (2.0 KiB)" in words
    assert "about 2 s for the closed ledgers at 1000 B/s (--rate)" in words


def test_open_ledgers_are_skipped_with_skip_open(run: Run) -> None:
    plan = run("bookie", "recover", DOWN, "--skip-open", "--dry-run", "-o", "json").json()["plan"]
    assert "ledger 7 is skipped: it is open" in plan["steps"]
    assert any("duration unknown" in step for step in plan["steps"])


def test_a_missing_ledger_among_others_is_an_item_with_an_error(run: Run) -> None:
    answer = run("bookie", "recover", LIVE, "--ledger", 3, "--ledger", 999, "--yes", "-o", "json")
    assert (answer.code, [item["ledger_id"] for item in answer.json()["items"]]) == (1, [999])
    assert answer.json()["items"][0]["error"] == "it is not in the metadata store"


def test_a_bookie_without_ledgers_has_nothing_to_recover(run: Run) -> None:
    answer = run("bookie", "recover", LIVE, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert answer.stderr == f"no ledger names {LIVE}\n"


def test_nothing_is_copied_to_a_bookie_that_is_drained(tree: MemoryTree, run: Run) -> None:
    on(tree, lambda store: DrainClaims(store, ROOT).take(LIVE, DrainClaim("bob@b", 0)))
    answer = run("bookie", "recover", DOWN, "--to", LIVE, "--yes", "-o", "json")
    assert (answer.code, "being drained by bob@b" in answer.error()["message"]) == (3, True)
    steps = run("bookie", "recover", DOWN, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert any("no other writable bookie" in step for step in steps)


async def test_entries_are_copied_and_the_metadata_names_the_new_bookie(tmp_path: Path) -> None:
    b1, b2, b3 = map(BookieId, ("b1:1", "b2:1", "b3:1"))
    async with live_bookies(tmp_path, b1, b2) as live:
        await live.write(3, copies=2)
        await live.start(b3)
        await live.stop(b2)
        done = await live.verb(recover, [b2], arguments=JobArguments())
        assert (done.exit, done.items) == (
            Exit.OK,
            [{"ledger_id": 3, "fragments": 1, "fenced": False, "error": None}],
        )
        assert "1 ledgers done, 0 not; copied 3 entries" in done.stderr
        assert await live.bookies_of(3) == {b1, b3}
        assert not list((tmp_path / "state/jobs").glob("*.json")), "the state of a completed job is deleted"
        await live.start(b2)
        await live.stop(b1)
        done = await live.verb(recover, [b1], ["3"], arguments=JobArguments())
        assert (done.exit, await live.bookies_of(3)) == (Exit.OK, {b2, b3})


async def test_a_ledger_without_a_copy_is_left_with_its_reason(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(3)
        await live.start(b2)
        await live.stop(b1)
        done = await live.verb(recover, [b1], arguments=JobArguments())
        assert (done.exit, done.items[0]["ledger_id"]) == (Exit.FINDINGS, 3)
        assert done.items[0]["error"]
        assert await live.bookies_of(3) == {b1}
