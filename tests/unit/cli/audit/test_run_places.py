"""`bkctl audit` with URIs of file systems that are not supported: exit 2 and one line before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit import session

from tests.command_line import bkctl
from tests.unit.cli.audit.test_runs import FINDING, made

URI = "s3a://bucket/x"
UNKNOWN = "dbfs://bucket/x"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--offline", ".", "--metadata", "none", "--to", UNKNOWN),
        ("run", "--metadata", "none", "--offline", URI),
        ("run", "--offline", ".", "--metadata", URI),
        ("run", "--offline", ".", "--metadata", "hdfs://name/x"),
        ("run", "--offline", ".", "--metadata", "none", "--to", "hdfs://name/[a]"),
        *(("show", UNKNOWN), ("explain", UNKNOWN), ("repair", UNKNOWN, "--dry-run")),
        *(("diff", UNKNOWN, "."), ("diff", ".", UNKNOWN), ("sql", "select 1", "--run", UNKNOWN)),
    ],
)
def test_a_uri_of_another_file_system_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(session, "session")  # Spark must not start
    made(tmp_path / "run", FINDING)
    words = tuple("run" if word == "." and words[0] == "diff" else word for word in words)
    answer = bkctl("audit", *words)
    assert answer.code == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert "is not supported" in line
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_settings_of_spark_for_a_run_of_this_machine_are_a_usage_error(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", FINDING)
    for words in (("show", folder), ("diff", folder, folder), ("sql", "select 1", "--run", folder)):
        answer = bkctl("audit", *words, "--spark-conf", "spark.hadoop.a=b")
        assert answer.code == 2
        assert "another file system" in answer.stderr


def test_results_are_read_by_a_file_uri(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", FINDING)
    assert len(bkctl("audit", "show", f"file://{folder}", "-o", "jsonl").rows()) == 1
    asked = bkctl("audit", "sql", "select count(*) as n from findings", "--run", f"file://{folder}", "-o", "jsonl")
    assert asked.rows() == [{"n": 1}]


@pytest.mark.parametrize("size", ["1KB", "0", "many", "-1MB"])
def test_a_part_size_below_a_mebibyte_or_not_a_size_is_a_usage_error(size: str, tmp_path: Path) -> None:
    answer = bkctl("audit", "run", "--offline", tmp_path, "--metadata", "none", f"--part-size={size}")
    assert answer.code == 2
    assert "--part-size" in answer.stderr
