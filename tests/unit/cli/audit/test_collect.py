"""`bkctl audit collect` as a command: its options, its priority, no Spark; and `audit run --facts`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from bkctl.cli.audit._runs import size_of
from bkctl.errors import UsageError
from tests.command_line import bkctl
from tests.golden import FOLDER, Golden

ZK_TREE = str(FOLDER / "zk_tree.json")
ROOT = Path(__file__).resolve().parents[4]
LIMIT_S = 300
PROCESS = """
import os, sys
sys.modules["pyspark"] = None
sys.path.insert(0, sys.argv[1])
from bkctl.cli import main
sys.argv[1:2] = []
try:
    code = main()
except SystemExit as end:
    code = end.code
print("niceness", os.nice(0), file=sys.stderr)
sys.exit(code)
"""


def process(*words: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, where pyspark cannot be imported."""
    command = [sys.executable, "-c", PROCESS, str(ROOT), *map(str, words)]
    environ = {**os.environ, "HOME": "/nonexistent"}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environ)


def test_collect_needs_no_spark_and_runs_at_low_priority(golden: Golden, tmp_path: Path) -> None:
    bookie = golden.bookie("bookie0")
    where = ("--to", f"file://{tmp_path}/facts", "--metadata", ZK_TREE)
    done = process("audit", "collect", "--dirs", bookie / "journal", "--dirs", bookie / "ledgers", *where, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "niceness 19" in done.stderr
    row = json.loads(done.stdout)
    assert row["files_read"] == 7
    assert row["digests_good"] > 0
    manifest = json.loads(Path(row["manifest"]).read_text())
    assert manifest["bookie_id"] == row["bookie_id"]
    assert manifest["started_ms"] <= manifest["ended_ms"]


@pytest.mark.parametrize("uri", ["ftp://host/facts", "http://host/facts", "foo:/facts", "file://host/facts"])
def test_unknown_scheme_is_a_usage_error_before_anything_is_read(uri: str, tmp_path: Path) -> None:
    for words in (("collect", "--dirs", tmp_path / "missing", "--to", uri), ("run", "--facts", uri)):
        answer = bkctl("audit", *words)
        assert answer.code == 2, answer.stderr
        (line,) = answer.stderr.splitlines()
        assert "is not supported" in line


def test_missing_directory_is_not_found_and_nothing_is_written(tmp_path: Path) -> None:
    answer = bkctl("audit", "collect", "--dirs", tmp_path / "missing", "--to", tmp_path / "facts")
    assert answer.code == 4
    assert not (tmp_path / "facts").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50MB", 50_000_000), ("50M", 50_000_000), ("1.5MiB", 1_572_864), ("4096", 4096), ("2GB/s", 2_000_000_000)],
)
def test_rate_limit_is_a_size(text: str, expected: int) -> None:
    assert size_of("--rate-limit", text) == expected


@pytest.mark.parametrize("text", ["0", "0MB", "fast", "-1", "1TBB", "", "0.1"])
def test_rate_limit_that_is_not_a_size_is_a_usage_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        size_of("--rate-limit", text)
    assert bkctl("audit", "collect", "--dirs", tmp_path, "--to", tmp_path, f"--rate-limit={text}").code == 2


@pytest.mark.parametrize("other", [("--offline", "."), ("--full",), ("--sample", "1%")])
def test_facts_exclude_options_that_read_files(other: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    answer = bkctl("audit", "run", "--facts", tmp_path, *other)
    assert answer.code == 2
    assert f"--facts and {other[0]} exclude each other" in answer.stderr


def test_facts_that_do_not_exist_are_not_found_before_spark_starts(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert bkctl("audit", "run", "--facts", tmp_path / "missing").code == 4
    answer = bkctl("audit", "run", "--facts", tmp_path, "--metadata", ZK_TREE)
    assert answer.code == 4
    assert "no bookie was collected" in answer.stderr


@pytest.mark.slow
def test_run_over_collected_facts_reports_their_findings(golden: Golden, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.unit.inspect.audit.test_job import change_a_byte

    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    assert process("audit", "collect", "--dirs", bookie, "--to", tmp_path / "facts").returncode == 0
    words = ("audit", "run", "--facts", tmp_path / "facts", "--metadata", ZK_TREE, "--check", "digests")
    command = [sys.executable, "-m", "bkctl", *map(str, words), "--to", str(tmp_path / "run"), "-o", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["code"], row["ledger_id"]) == ("BKC107", 3)
    assert "was collected without --metadata" in done.stderr
