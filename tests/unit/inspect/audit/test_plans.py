"""The plans of a run by Spark's own event log: no stage reads many rows in one task."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import pyarrow.parquet as parquet
from bkinspect.audit import job
from bkinspect.audit.schemas import KEPT_FINDINGS
from bkinspect.audit.storage import LocalStorage

from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.meta.paths import ledger_path
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from tests.bench import audit as bench

LOGS: Final = 4
LOG_SIZE: Final = 15 << 20
ENTRY_SIZE: Final = 56
PAYLOAD_SIZE: Final = ENTRY_SIZE - 36
LEDGERS_A_LOG: Final = 100
ROWS_IN_ONE_TASK_MAX: Final = 100_000
READS_OF_ENTRIES_MAX: Final = 3
ROWS_ABOUT_FILES_MAX: Final = 2_000
"""Rows of the scan that are not records: maps, files and ranges."""
TIMEOUT_S: Final = 500
TYPES: Final = {column.name: column.type for column in KEPT_FINDINGS.columns}
_READ: Final = ("internal.metrics.input.recordsRead", "internal.metrics.shuffle.read.recordsRead")
pytestmark = pytest.mark.slow


class Stage(NamedTuple):
    """A stage that ended: its number of tasks, and the records that these read from files and shuffles."""

    name: str
    tasks: int
    records: int


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of the logs below a folder."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith((".", "appstatus")):
            yield from map(json.loads, path.read_text().splitlines())


def stages(folder: Path) -> Iterator[Stage]:
    """The stages of the event logs below a folder."""
    for event in events(folder):
        if event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            read = sum(int(one["Value"]) for one in info["Accumulables"] if one["Name"] in _READ)
            yield Stage(f"{info['Stage ID']} {info['Stage Name']}", info["Number of Tasks"], read)


def rows_read(folder: Path, table: str) -> int:
    """Rows that all scans of a folder of Parquet with this name gave, by the metrics of Spark's plans."""
    metrics: set[int] = set()
    values: dict[int, int] = {}

    def visit(plan: dict[str, Any]) -> None:
        if plan["nodeName"].startswith("Scan parquet") and f"/{table}]" in plan["metadata"].get("Location", ""):
            metrics.update(one["accumulatorId"] for one in plan["metrics"] if one["name"] == "number of output rows")
        for child in plan["children"]:
            visit(child)

    for event in events(folder):
        if "sparkPlanInfo" in event:
            visit(event["sparkPlanInfo"])
        for one in event.get("Stage Info", {}).get("Accumulables", ()):
            if one.get("Name") == "number of output rows":
                values[one["ID"]] = max(int(one["Value"]), values.get(one["ID"], 0))
    return sum(values.get(metric, 0) for metric in metrics)


def export(path: Path, cookie: bytes) -> int:
    """Metadata of the ledgers that `bench.make_logs` writes; returns the number of their entries."""
    bookie = BookieId(bench.BOOKIES[0])
    nodes = {f"/ledgers/available/{bookie}": b"", f"/ledgers/cookies/{bookie}": cookie}
    frames = LOG_SIZE // (ENTRY_SIZE + 4)
    for log_id in range(LOGS):
        for place in range(LEDGERS_A_LOG):
            ledger_id = log_id * LEDGERS_A_LOG + place
            entries = (frames - place - 1) // LEDGERS_A_LOG + 1
            ensembles = (Ensemble(EntryId(0), (bookie,)),)
            metadata = LedgerMetadata(1, 1, 1, ensembles, digest_type=DigestType.CRC32C, ctime_ms=bench.START_MS)
            closed = metadata.closed_at(EntryId(entries - 1), entries * PAYLOAD_SIZE)
            nodes[ledger_path("/ledgers", LedgerManager.HIERARCHICAL, ledger_id)] = encode_metadata(closed)
    with path.open("w") as file:
        for name, data in nodes.items():
            file.write(json.dumps({"path": name, "data": base64.b64encode(data).decode()}) + "\n")
    return LOGS * frames


def test_findings_are_compacted_in_order(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "FINDINGS_A_FILE", 40)
    columns = [f"cast({'id' if name == 'ledger_id' else 'null'} as {kind}) as {name}" for name, kind in TYPES.items()]
    found = spark.range(99, -1, -1, 7).selectExpr(*columns).fillna({"code": "BKC411", "severity": "warning"})
    (row,) = job._kept(found, LocalStorage.of(tmp_path / "findings"), 100)
    assert (row["code"], row["severity"], row["count"]) == ("BKC411", "warning", 100)
    files = [parquet.read_table(file)["ledger_id"].to_pylist() for file in (tmp_path / "findings").glob("*.parquet")]
    assert 1 < len(files) <= 3
    assert all(ids == sorted(ids) for ids in files)
    assert sorted(one for ids in files for one in ids) == list(range(100))


def test_a_run_over_a_million_entries_reads_them_three_times_at_most_and_never_in_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "LOG_SIZE", LOG_SIZE)
    bench.make_logs(tmp_path / "bookie", LOGS * LOG_SIZE, ENTRY_SIZE)
    cookie = (tmp_path / "bookie/ledgers/current/VERSION").read_bytes()
    (tmp_path / "bookie/journal/current").mkdir(parents=True)
    (tmp_path / "bookie/journal/current/VERSION").write_bytes(cookie)
    entries = export(tmp_path / "export.jsonl", cookie)
    (tmp_path / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    words = [word for name, value in settings.items() for word in ("--spark-conf", f"{name}={value}")]
    places = ["--offline", str(tmp_path / "bookie"), "--metadata", str(tmp_path / "export.jsonl")]
    command = [sys.executable, "-m", "bkctl", "audit", "run", "--master", "local[2]", *words, *places]
    done = subprocess.run(
        [*command, "--to", str(tmp_path / "run"), "-o", "jsonl"],
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "BKCTL_STATE_DIR": str(tmp_path)},
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    about = json.loads((tmp_path / "run/run.json").read_text())
    assert "BKC461" not in about["counts"], "a check failed"
    found = list(stages(tmp_path / "events"))
    assert max(stage.records for stage in found if stage.tasks > 1) >= entries, "the facts were read"
    assert [stage for stage in found if stage.tasks == 1 and stage.records > ROWS_IN_ONE_TASK_MAX] == []
    read = rows_read(tmp_path / "events", "scan")
    assert entries <= read <= READS_OF_ENTRIES_MAX * (entries + ROWS_ABOUT_FILES_MAX)
