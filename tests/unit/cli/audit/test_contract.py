"""The options of `audit run` for unattended runs: exit codes, suppressions, metrics, --resume."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit import session
from bkinspect.audit.contract import Suppression

from bkctl.cli.audit import _contract
from bkctl.errors import NotFound, Refused, UsageError
from bkctl.world import PrivateDisk
from tests.command_line import bkctl
from tests.golden import FOLDER, Golden
from tests.unit.cli.audit.saved_run import FINDING, made
from tests.unit.inspect.audit.test_job import change_a_byte
from tests.unit.inspect.audit.test_two_workers import SETTINGS

ZK_TREE = str(FOLDER / "zk_tree.json")
LIMIT_S = 300


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--fail-on", "never"), 2, "--fail-on never"),
        (("--fail-on", "info"), 2, "--fail-on info"),
        (("--allow", "BKC411=-1"), 2, "--allow BKC411=-1"),
        (("--allow", "BKC999=1"), 2, "no finding with the code BKC999"),
        (("--suppressions", "none.toml"), 4, "no suppression file none.toml"),
        (("--suppressions", "bad.toml"), 2, "bad.toml, line 1, entry 1, reason: expected text"),
        (("--suppressions", "s3a://bucket/x"), 2, "is not supported"),
        (("--metrics-file", "none/audit.prom"), 2, "there is no directory"),
        (("--metrics-push", "ftp://h"), 2, "expected an http or https URL"),
        (("--resume", "--full"), 2, "--resume uses the files"),
        (("--resume",), 4, "no interrupted audit in"),
        (("--resume", "--to", "run"), 4, "no interrupted audit in run"),
    ],
)
def test_an_option_that_is_not_valid_is_one_error_before_spark_starts(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(session, "session")  # Spark must not start
    made(tmp_path / "run", FINDING)
    (tmp_path / "bad.toml").write_text('[[suppress]]\ncode = "BKC411"\nexpires = 2026-12-31\n')
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    answer = bkctl("audit", "run", "--offline", ".", "--metadata", "none", *words, environ=environ)
    assert answer.code == code, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert message in line
    assert {path.name for path in tmp_path.iterdir()} == {"run", "bad.toml"}


def test_the_contract_holds_severity_budgets_and_suppressions(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[suppress]]\ncode = "BKC411"\nreason = "OPS-1"\nexpires = 2026-12-31\n')
    contract = _contract.contract_of("error", ["BKC411=3"], str(file))
    assert (str(contract.fail_on), contract.budgets, contract.file) == ("error", {"BKC411": 3}, file)
    assert [type(one) for one in contract.suppressions] == [Suppression]


def test_a_second_run_in_a_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    run = tmp_path / "below/run"
    with _contract.locked(run):
        assert run.stat().st_mode & 0o777 == run.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(Refused, match="another audit is in progress"), _contract.locked(run):
            pass
    with _contract.locked(run):
        pass
    assert not run.exists()


def test_resume_takes_the_newest_interrupted_run_that_is_not_in_progress(tmp_path: Path) -> None:
    for name in ("old/facts-1", "new/facts-2"):
        (tmp_path / name).mkdir(parents=True)
    assert _contract.folder_of(tmp_path, None, True, False) == str(tmp_path / "new")
    assert _contract.folder_of(tmp_path / "none", str(tmp_path / "old"), True, False) == str(tmp_path / "old")
    release = PrivateDisk().lock(tmp_path / "new" / _contract.LOCK)
    assert release is not None
    assert _contract.resumed(tmp_path) == tmp_path / "old"
    with pytest.raises(NotFound):
        _contract.resumed(tmp_path / "new")
    release()
    assert _contract.resumed(tmp_path) == tmp_path / "new", "its process was killed"
    with pytest.raises(UsageError):
        _contract.folder_of(tmp_path, None, True, True)


class Ran(NamedTuple):
    """A run in a process of its own."""

    code: int
    findings: list[dict[str, Any]]
    said: str
    about: dict[str, Any]


def audited(folder: Path, bookie: Path, *words: str) -> Ran:
    settings = [word for name, value in SETTINGS.items() for word in ("--spark-conf", f"{name}={value}")]
    command = [sys.executable, "-m", "bkctl", "audit", "run", *settings, "--offline", str(bookie)]
    done = subprocess.run(
        [*command, "--metadata", ZK_TREE, "--check", "digests", "-o", "jsonl", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "BKCTL_STATE_DIR": str(folder.parent / "state")},
    )
    path = folder / "run.json"
    about = json.loads(path.read_text()) if path.exists() else {}
    return Ran(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr, about)


@pytest.mark.slow
def test_two_nights(golden: Golden, tmp_path: Path) -> None:
    """One damaged entry fails the first night; the second resumes a killed run with the entry suppressed."""
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    runs, prom = tmp_path / "runs", tmp_path / "audit.prom"
    metrics = ("--metrics-file", str(prom), "--metrics-push", "http://127.0.0.1:1")
    first = audited(runs / "first", bookie, "--to", str(runs / "first"), "--fail-on", "error", *metrics)
    assert first.code == 1, first.said
    (finding,) = first.findings
    assert (finding["code"], finding["runs_seen"], finding["suppressed"]) == ("BKC107", 1, None)
    assert finding["first_seen_ms"] == finding["last_seen_ms"] == first.about["as_of_ms"]
    assert first.about["contract"]["failing"] == {"BKC107": 1}
    assert first.about["instance_id"]
    assert "warning: cannot push metrics to http://127.0.0.1:1/metrics/job/bkctl_audit" in first.said
    assert prom.stat().st_mode & 0o777 == 0o644
    samples = dict(line.rsplit(" ", 1) for line in prom.read_text().splitlines() if not line.startswith("#"))
    cluster = f'cluster="{ZK_TREE}"'
    found = f'bkctl_audit_findings{{{cluster},code="BKC107",severity="error",suppressed="false"}}'
    assert (samples[found], samples[f"bkctl_audit_success{{{cluster}}}"]) == ("1", "1")
    assert int(samples[f'bkctl_audit_verified_entries{{{cluster},by="this_run"}}']) > 0

    shutil.copytree(runs / "first", runs / "killed")
    (runs / "killed/run.json").unlink()
    (tmp_path / "s.toml").write_text(
        '[[suppress]]\ncode = "BKC107"\nledger_id = 3\nreason = "OPS-1"\nexpires = 9999-12-31\n'
        '[[suppress]]\ncode = "BKC107"\nreason = "OPS-2"\nexpires = 2001-01-01\n'
        '[[suppress]]\ncode = "BKC411"\nreason = "OPS-3"\nexpires = 9999-12-31\n'
    )
    resume = ("--resume", "--to", str(runs), "--suppressions", str(tmp_path / "s.toml"))
    second = audited(runs / "killed", bookie, *resume, "--metrics-file", str(prom))
    assert second.code == 0, second.said
    (finding,) = second.findings
    assert (finding["runs_seen"], finding["suppressed"]) == (2, "OPS-1")
    assert (finding["first_seen_ms"], finding["last_seen_ms"]) == (first.about["as_of_ms"], second.about["as_of_ms"])
    assert (second.about["files_read"], second.about["files_kept"]) == (0, 7)
    assert second.about["contract"]["suppressed"] == {"BKC107": 1}
    assert "suppression 2 (BKC107) expired on 2001-01-01" in second.said
    assert "suppression 3 (BKC411) matches no finding" in second.said
    assert "suppressed: OPS-1" in (runs / "killed/report.html").read_text()
    assert not list(runs.glob("*/.lock"))
    samples = dict(line.rsplit(" ", 1) for line in prom.read_text().splitlines() if not line.startswith("#"))
    assert samples[f'bkctl_audit_verified_entries{{{cluster},by="this_run"}}'] == "0"
    assert int(samples[f'bkctl_audit_verified_entries{{{cluster},by="earlier_run"}}']) > 0
    (shown,) = bkctl("audit", "show", runs / "killed", "-o", "jsonl").rows()
    assert shown == finding


@pytest.mark.slow
def test_a_run_that_fails_leaves_metrics_without_success(golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    shutil.copytree(bookie, tmp_path / "twice")
    prom = tmp_path / "audit.prom"
    words = ("--offline", str(tmp_path / "twice"), "--to", str(tmp_path / "run"), "--metrics-file", str(prom))
    failed = audited(tmp_path / "run", bookie, *words)
    assert failed.code == 5, failed.said
    assert f'bkctl_audit_success{{cluster="{ZK_TREE}"}} 0' in prom.read_text().splitlines()
    assert "bkctl_audit_findings" not in prom.read_text()
