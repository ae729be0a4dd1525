"""`bkctl autorecovery check`: a check in its own process, one by the auditor, and stored results."""

from __future__ import annotations

import pytest

from bkctl.codec.recovery_notes import CheckName, CheckResult, Finding
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import B, add_auditor, check_needs_confirmation, json_of, on


def test_check_bookies_marks_the_ledgers_of_unregistered_bookies(tree: MemoryTree) -> None:
    item = json_of(tree, "check", "bookies", "--yes", code=1)
    assert (item["marked"], item["lost_bookies"]) == (1, 1), "two ledgers of three were marked before"
    assert json_of(tree, "queue", "show", 6)["missing_bookies"] == [B[0]]
    assert json_of(tree, "check", "bookies", "--yes")["marked"] == 0


def test_the_result_of_a_check_is_stored(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "check", "bookies", "--last", "-o", "json", tree=tree)
    assert (answer.code, answer.error()["message"]) == (4, "no result of check bookies is stored")
    json_of(tree, "check", "bookies", "--yes", code=1)
    item = json_of(tree, "check", "bookies", "--last")
    assert (item["marked"], item["findings"]) == (1, [{"ledger_id": 6, "text": f"lost {B[0]}"}])
    assert "manual" in item["by"]
    json_of(tree, "check", "placement", "--yes")
    assert bkctl("autorecovery", "check", "--last", "-o", "name", tree=tree).stdout.split() == ["bookies", "placement"]
    assert [check["check"] for check in json_of(tree, "status")["checks"]] == ["bookies", "placement"]


def test_last_shows_the_findings_and_the_error_of_a_failed_check(tree: MemoryTree) -> None:
    result = CheckResult(
        CheckName.REPLICAS, "b1", 1, 2, {"no_replica": 1}, (Finding(6, "entry 3 is nowhere"),), 5, "why"
    )
    on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).keep(result))
    item = json_of(tree, "check", "replicas", "--last")
    assert (item["figures"], item["findings_count"], item["error"]) == ({"no_replica": 1}, 5, "why")


class Auditor(MemoryStore):
    """A store whose auditor answers each request at once with `result`."""

    result = CheckResult(CheckName.REPLICAS, "b9:3181", 1, 2, {"ledgers": 3}, (), 0)

    async def create(self, path: str, data: bytes = b"", **options: bool) -> str:
        created = await super().create(path, data, **options)
        if "/requests/q_" in path:
            board = RecoveryBoard(self, "/ledgers")
            await board.keep(self.result)
            await board.answered(created.rpartition("/")[2])
        return created


class FailingAuditor(Auditor):
    result = CheckResult(CheckName.REPLICAS, "b9:3181", 1, 2, error="b1 does not answer")


def test_wait_returns_the_result_of_the_auditor(tree: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    add_auditor(tree, accepts_requests=True)
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", Auditor)
        item = json_of(tree, "check", "replicas", "--wait", "--yes")
    assert (item["by"], item["ledgers_checked"]) == ("b9:3181", 3)


def test_a_check_that_failed_in_the_auditor_is_unavailable(tree: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    add_auditor(tree, accepts_requests=True)
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", FailingAuditor)
        answer = bkctl("autorecovery", "check", "replicas", "--wait", "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.stdout) == (6, "")
    assert answer.error()["message"] == "the check replicas failed: b1 does not answer"
    assert answer.error()["details"]["by"] == "b9:3181"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "missing argument CHECK"),
        (("everything",), 2, "'everything' is not a valid check"),
        (("everything", "--last"), 2, "'everything' is not a valid check"),
        (("all", "--wait"), 6, "no auditor is running"),
    ],
)
def test_a_check_that_cannot_run_is_one_error(
    tree: MemoryTree, words: tuple[str, ...], code: int, message: str
) -> None:
    answer = bkctl("autorecovery", "check", *words, "--yes", tree=tree)
    assert (answer.code, answer.stdout) == (code, "")
    assert message in answer.stderr.splitlines()[-1]


def test_a_check_is_refused_while_auto_recovery_is_disabled(tree: MemoryTree) -> None:
    json_of(tree, "disable", "--yes")
    for words in (("all",), ("all", "--wait")):
        assert bkctl("autorecovery", "check", *words, "--yes", tree=tree).code == 3


def test_a_java_auditor_runs_no_check_on_request(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=False)
    answer = bkctl("autorecovery", "check", "all", "--wait", "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.error()["kind"]) == (3, "refused")


def test_a_check_needs_confirmation(tree: MemoryTree) -> None:
    check_needs_confirmation(tree, "check", "bookies")
