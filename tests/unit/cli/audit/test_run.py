"""The options of `bkctl audit run`: one error before Spark starts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from bkinspect.audit import session

from bkctl.cli.audit.run import duration_ms, moment_ms, share
from bkctl.errors import UsageError
from tests.command_line import bkctl
from tests.unit.cli.audit.saved_run import FINDING, made, refused

URI = "s3a://bucket/x"
UNKNOWN = "dbfs://bucket/x"


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark cannot start."""
    monkeypatch.delattr(session, "session")


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
def test_a_uri_of_a_file_system_that_is_not_supported_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "run", FINDING)
    words = tuple("run" if word == "." and words[0] == "diff" else word for word in words)
    answer = bkctl("audit", *words)
    assert answer.code == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert "is not supported" in line
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize("size", ["1KB", "0", "many", "-1MB"])
def test_a_part_size_below_a_mebibyte_or_not_a_size_is_a_usage_error(size: str, tmp_path: Path) -> None:
    answer = bkctl("audit", "run", "--offline", tmp_path, "--metadata", "none", f"--part-size={size}")
    assert answer.code == 2
    assert "--part-size" in answer.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--metadata", "none"), 2, "nothing to audit"),
        ((), 2, "no metadata store is given"),
        (("--offline", ".", "--metadata", "none.jsonl"), 4, "metadata export does not exist: none.jsonl"),
        (("--offline", "none", "--metadata", "none"), 4, "directory does not exist: none"),
        (("--offline", ".", "--metadata", "none", "--check", "everything"), 4, "there is no check everything"),
        (("--offline", ".", "--metadata", "none", "--check", "ends"), 2, "--check ends asks running bookies"),
        (("-m", "zk://127.0.0.1:1/l", "--check", "indexes"), 2, "running bookies give no files"),
        (("--offline", ".", "--metadata", "none", "--sample", "0"), 2, "--sample 0"),
        (("--offline", ".", "--metadata", "none", "--since", "soon"), 2, "'soon' is not a valid time"),
        (("--offline", ".", "--metadata", "none", "--min-age", "1w"), 2, "'1w' is not a valid age"),
        (("--offline", ".", "--metadata", "none", "--ledger", "five"), 2, "five"),
        (("--facts", ".", "--offline", "."), 2, "--facts and --offline exclude each other"),
        (("--facts", ".", "--full"), 2, "--facts and --full exclude each other"),
        (("--offline", ".", "--metadata", "none", "--to", "file"), 2, "is not a directory"),
        (("--offline", ".", "--metadata", "none", "--spark-conf", "x"), 2, "--spark-conf x"),
        (("--offline", ".", "--metadata", "none", "--catalog", "lake"), 2, "--catalog requires"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_is_not_valid_is_one_error(
    words: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    no_spark: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    answer = bkctl("audit", "run", *words, environ={"BKCTL_STATE_DIR": str(tmp_path / "state")})
    refused(answer, code, message)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_with_a_run_json_of_another_program_is_refused(tmp_path: Path, no_spark: None) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/run.json").write_text('{"name": "mine"}')
    answer = bkctl("audit", "run", "--offline", tmp_path, "--metadata", "none", "--to", tmp_path / "mine")
    refused(answer, 3, "run.json")


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.01", 0.01), ("100%", 1.0), ("1", 1.0)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, value: float) -> None:
    assert share(text) == value


@pytest.mark.parametrize("text", ["", "%", "0%", "101%", "2", "-0.1", "some", "nan"])
def test_a_text_that_is_not_a_share_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--sample"):
        share(text)


@pytest.mark.parametrize(
    ("text", "value"), [("5ms", 5), ("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("7d", 604_800_000)]
)
def test_an_age_is_parsed_to_milliseconds(text: str, value: int) -> None:
    assert duration_ms(text) == value
    before = int(time.time() * 1000)
    assert before - value <= moment_ms(text) <= int(time.time() * 1000) - value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:01+01:00", 1000), ("1970-01-02", 86_400_000)],
)
def test_a_time_without_a_zone_is_utc(text: str, value: int) -> None:
    assert moment_ms(text) == value


@pytest.mark.parametrize("text", ["", "7", "d7", "1h30m", "-1s"])
def test_a_text_that_is_not_an_age_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid age"):
        duration_ms(text)
