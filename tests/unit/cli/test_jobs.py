"""What jobs on many ledgers share: the rate, the plan, targets, the state of an interrupted run, the summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile, JobState, keep_measured_rate, state_path

from bkctl.cli.jobs import blocked_item, parse_rate
from bkctl.errors import UsageError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import SystemDisk
from tests.command_line import Answer, bkctl
from tests.unit.cli.bookie.bookie_tree import DOWN, LIVE, NEW, OTHER, ROOT, ledgers_tree, on

RECOVER = ("bookie", "recover", DOWN)


@pytest.fixture
def tree() -> MemoryTree:
    return ledgers_tree()


@pytest.fixture
def run(tree: MemoryTree, tmp_path: Path) -> Callable[..., Answer]:
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state"), "USER": "ann"}
    return lambda *arguments: bkctl(*arguments, tree=tree, environ=environ)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50000000", 5e7), ("50MB", 5e7), ("64MiB/s", 64 * 2**20), ("1.5 kB", 1500.0), ("2G", 2e9)],
)
def test_a_rate_is_parsed_to_bytes_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "fast", "-5", "5XB", "1e9"])
def test_a_text_that_is_not_a_rate_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid rate"):
        parse_rate(text)


def steps_of(answer: Answer) -> list[str]:
    assert answer.code == 0, answer.stderr
    found: list[str] = answer.json()["plan"]["steps"]
    return found


def test_a_plan_with_many_ledgers_sums_them_up(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    async def fill(store: MemoryStore) -> None:
        ledgers = LedgerStore(store, ROOT)
        ledger = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (DOWN, OTHER)),))
        for ledger_id in range(100, 123):
            await ledgers.create(ledger.closed_at(9, 1000), ledger_id)
        for ledger_id in range(200, 222):
            await ledgers.create(ledger, ledger_id)

    on(tree, fill)
    steps = steps_of(run(*RECOVER, "--skip-open", "--dry-run", "-o", "json"))
    assert "and 5 more ledgers" in steps
    assert "and 3 more ledgers are skipped" in steps
    assert sum(step.startswith("ledger 1") for step in steps) == 18


def test_the_duration_comes_from_the_rate_that_an_earlier_job_measured(
    run: Callable[..., Answer], tmp_path: Path
) -> None:
    assert any("duration unknown" in step for step in steps_of(run(*RECOVER, "--dry-run", "-o", "json")))
    disk = SystemDisk()
    disk.make_dirs(tmp_path / "state/jobs")
    keep_measured_rate(disk, tmp_path / "state/jobs", 1000.0)
    steps = steps_of(run(*RECOVER, "--dry-run", "-o", "json"))
    assert "about 2 s for the closed ledgers at 1000 B/s (measured by the last job on this machine)" in steps


def test_a_job_that_was_interrupted_continues_with_the_ledgers_that_are_left(
    run: Callable[..., Answer], tmp_path: Path
) -> None:
    path = state_path(tmp_path / "state/jobs", "bookie recover", "memory:2181/ledgers", [DOWN])
    disk = SystemDisk()
    disk.make_dirs(path.parent)
    state = JobState("bookie recover", "memory:2181/ledgers", (DOWN,), 1_700_000_000_000, left=[5], done=1)
    JobFile(disk, path).save(state)
    answer = run(*RECOVER, "--dry-run", "-o", "json")
    assert "resuming the job of 2023-11-14T22:13:20.000Z: 1 ledgers are done, 1 are left" in answer.stderr
    assert [step.split(":")[0] for step in steps_of(answer) if step.startswith("ledger ")] == ["ledger 5"]
    answer = run(*RECOVER, "--restart", "--dry-run", "-o", "json")
    assert len([step for step in steps_of(answer) if step.startswith("ledger ")]) == 3


def test_a_state_file_that_is_not_valid_is_one_error_until_restart(run: Callable[..., Answer], tmp_path: Path) -> None:
    rename = ("bookie", "rename", "--from", DOWN, "--to", NEW)
    state = tmp_path / "job.json"
    state.write_text("{")
    answer = run(*rename, "--state", state, "--yes", "-o", "json")
    assert (answer.code, answer.stdout, "is not a valid job state" in answer.error()["message"]) == (3, "", True)
    assert run(*rename, "--state", state, "--restart", "--yes").code == 1


def test_a_read_only_bookie_is_refused_as_a_target(tree: MemoryTree, run: Callable[..., Answer]) -> None:
    async def make_read_only(store: MemoryStore) -> None:
        await store.delete_any(f"{ROOT}/available/{LIVE}")
        await BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True)

    on(tree, make_read_only)
    answer = run(*RECOVER, "--to", LIVE, "--yes", "-o", "json")
    assert (answer.code, answer.stdout) == (3, "")
    assert answer.error()["message"] == f"bookie {LIVE} is read-only: it accepts no copies"


def test_a_ledger_that_is_left_keeps_the_state_and_is_named_in_the_summary(
    tree: MemoryTree, run: Callable[..., Answer], tmp_path: Path
) -> None:
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/{LIVE}"))  # No bookie is left for the copies.
    answer = run(*RECOVER, "--skip-open", "--yes", "-o", "json")
    assert answer.code == 1
    assert "0 ledgers done, 3 not; copied 0 entries" in answer.stderr
    assert "ledger 7: it is open" in answer.stderr
    assert "the same command retries these" in answer.stderr
    (file,) = (tmp_path / "state/jobs").glob("*.json")
    (job,) = bkctl("job", "list", "-o", "jsonl", environ={"BKCTL_STATE_DIR": str(tmp_path / "state")}).rows()
    assert (job["file"], job["state"], job["command"]) == (str(file), "stopped", job["command"])
    assert job["command"].startswith(f"bkctl bookie recover {DOWN}")
    assert job["by"].startswith("ann@")


def test_a_blocked_ledger_has_the_fields_of_every_item() -> None:
    assert blocked_item(5, "why") == {"ledger_id": 5, "fragments": 0, "fenced": False, "error": "why"}
