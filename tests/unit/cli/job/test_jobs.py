"""How the verbs of `bkctl job` find a job, and the fields of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile, JobState

from bkctl.cli.job._jobs import rate_of
from bkctl.errors import UsageError
from bkctl.world import SystemDisk
from tests.unit.cli.bookie.bookie_tree import Run


def test_a_job_is_found_by_its_name_the_end_of_its_name_and_its_file(jobs: Path, run: Run) -> None:
    shown = run("show", "bookie-drain-00aa", "-o", "json").json()
    assert shown["failed_ledgers"] == [{"ledger_id": 9, "error": "no bookie"}]
    assert shown["command"] == "bkctl bookie drain b1:3181"
    assert run("show", "00aa", "-o", "json").json() == shown
    assert run("show", jobs / "bookie-drain-00aa.json", "-o", "json").json() == shown


def test_a_name_that_no_job_has_is_not_found(jobs: Path, run: Run) -> None:
    for name in ("ffff", jobs / "none.json"):
        answer = run("show", name, "-o", "json")
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")


def test_a_name_that_several_jobs_have_is_ambiguous(jobs: Path, run: Run) -> None:
    JobFile(SystemDisk(), jobs / "bookie-recover-10aa.json").save(JobState("bookie recover", "zk", ("b1:1",), 5))
    answer = run("show", "0aa", "-o", "json")
    assert (answer.code, "bookie-drain-00aa, bookie-recover-10aa" in answer.error()["message"]) == (2, True)


def test_a_state_file_that_cannot_be_read_is_refused_and_listed_as_unreadable(jobs: Path, run: Run) -> None:
    (jobs / "broken-00cc.json").write_text("{")
    answer = run("show", "00cc", "-o", "json")
    assert (answer.code, "--restart" in answer.error()["hint"]) == (3, True)
    (row,) = [row for row in run("list", "-o", "jsonl").rows() if row["state"] == "unreadable"]
    assert (row["job"], row["started"], row["done"]) == ("broken-00cc", None, None)
    assert row["error"]


@pytest.mark.parametrize(
    ("kind", "text", "rate"),
    [
        ("bookie drain", "none", 0.0),
        ("bookie drain", "5MB", 5e6),
        ("bookie rename", " None ", 0.0),
        ("bookie rename", "2.5", 2.5),
    ],
)
def test_a_rate_is_in_bytes_and_that_of_a_rename_in_ledgers(kind: str, text: str, rate: float) -> None:
    assert rate_of(kind, text) == rate


@pytest.mark.parametrize(
    ("kind", "text"),
    [*(("bookie rename", text) for text in ("5MB", "0", "-1", "inf", "nan", "")), ("bookie drain", "5 miles")],
)
def test_a_rate_that_is_not_valid_is_a_usage_error(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match="not a valid rate"):
        rate_of(kind, text)
