"""When findings were seen across runs, what changed, and which runs of a folder are of the same cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.history import (
    Run,
    changes,
    common_folder,
    earlier_runs,
    interrupted_runs,
    last_comparable,
    same_cluster,
    with_history,
)
from bkinspect.audit.results import about_run
from bkinspect.audit.schemas import FINDINGS, KEPT_FINDINGS, arrow_schema
from bkinspect.audit.storage import LocalStorage

from tests.unit.cli.audit.test_runs import FINDING, made

DAY_MS = 86_400_000
ABOUT: dict[str, Any] = {"as_of_ms": 9 * DAY_MS, "metadata": "export.jsonl", "instance_id": None, "offline": []}


def finding(**values: object) -> dict[str, Any]:
    return {**FINDING, **values}


def kept(folder: Path, day: int, *findings: dict[str, Any], **about: Any) -> Run:
    """A run of this day, with its findings in findings-<as_of_ms> as `audit run` leaves them."""
    stamp = day * DAY_MS
    made(folder, **{"as_of_ms": stamp, "findings": f"findings-{stamp}", **about})
    rows = [{name: row.get(name) for name in KEPT_FINDINGS.names} for row in findings]
    (folder / f"findings-{stamp}").mkdir()
    table = pa.Table.from_pylist(rows, arrow_schema(KEPT_FINDINGS))
    parquet.write_table(table, folder / f"findings-{stamp}/part.parquet")
    return Run(LocalStorage.of(folder), about_run(folder))


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        ([], ""),
        (["/mnt/night1"], "/mnt/night1"),
        (["/mnt/night1/", "/mnt/night1/b2"], "/mnt/night1"),
        (["/mnt/night1/b1", "/mnt/night1/b2"], "/mnt/night1"),
        (["/mnt/night1/b1", "/mnt/night1/b10"], "/mnt/night1"),
        (["/data1/bookie", "/data2/bookie"], ""),
        (["/"], ""),
    ],
)
def test_files_are_relative_to_the_folder_of_all_directories(paths: list[str], folder: str) -> None:
    assert common_folder(paths) == folder


def test_runs_of_the_same_cluster_have_its_instance_id_or_its_metadata() -> None:
    def of(metadata: str | None, instance_id: str | None = None, *offline: str) -> dict[str, Any]:
        return {"metadata": metadata, "instance_id": instance_id, "offline": list(offline)}

    assert same_cluster(of("monday.jsonl", "a"), of("tuesday.jsonl", "a"))
    assert not same_cluster(of("zk", "a"), of("zk", "b")), "formatted in between"
    assert same_cluster(of("zk"), of("zk", "b")), "one run has read no cookie"
    assert not same_cluster(of("zk1"), of("zk2", "b"))
    assert same_cluster(of(None, None, "/b1", "/b2"), of(None, None, "/b2", "/b1"))
    assert not same_cluster(of(None, None, "/b1"), of(None, None, "/b2"))


def test_earlier_runs_are_those_beside_the_run_and_the_one_that_it_replaces(tmp_path: Path) -> None:
    kept(tmp_path / "first", 1)
    kept(tmp_path / "second", 2)
    kept(tmp_path / "own", 3)
    kept(tmp_path / "later", 10)
    kept(tmp_path / "other", 4, metadata="other.jsonl")
    made(tmp_path / "version", as_of_ms=5 * DAY_MS, format=2)
    kept(tmp_path / "outside", 6, findings="../first/findings-1")
    kept(tmp_path / "text", 7, seconds="1.5")
    kept(tmp_path / "list", 8, severities=["error"])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/run.json").write_text("[")
    found = earlier_runs(LocalStorage.of(tmp_path / "own"), ABOUT)
    assert [run.folder.name for run in found] == ["own", "second", "first"]


def test_runs_with_other_checks_or_another_selection_are_not_compared(tmp_path: Path) -> None:
    ends = kept(tmp_path / "ends", 3, checks=["ends"])
    sample = kept(tmp_path / "sample", 2, selection={"sample": 100})
    whole = kept(tmp_path / "whole", 1)
    own = kept(tmp_path / "own", 4)
    assert last_comparable(own.about, [ends, sample, whole]) == whole
    assert last_comparable(own.about, [ends, sample]) is None


def test_changes_are_new_and_gone_findings_wherever_the_directories_are_mounted(tmp_path: Path) -> None:
    log = "ledgers/current/0.log"
    before = kept(
        tmp_path / "before", 1,
        finding(ledger_id=1, file=f"/mnt/night1/{log}", offset=8, message="as it was"),
        finding(ledger_id=2, severity="warning", code="BKC411"),
        finding(ledger_id=3),
        offline_root="/mnt/night1",
    )  # fmt: skip
    after = kept(
        tmp_path / "after", 2,
        finding(ledger_id=1, file=f"/mnt/night2/{log}", offset=8, message="in other words"),
        finding(ledger_id=1, file=f"/mnt/night2/{log}", offset=9),
        offline_root="/mnt/night2",
    )  # fmt: skip
    changed = changes(after, before, 10)
    assert changed is not None
    assert (changed.new, changed.gone) == ({"BKC401": 1}, {"BKC401": 1, "BKC411": 1})
    assert [(item["code"], item["ledger_id"]) for item in changed.gone_items] == [("BKC401", 3), ("BKC411", 2)]
    limited = changes(after, before, 1)
    assert limited is not None
    assert len(limited.gone_items) == 1
    same = changes(after, after, 10)
    assert same is not None
    assert (same.new, same.gone) == ({}, {})
    before.findings.write("part.parquet", b"PAR1")
    assert changes(after, before, 10) is None


def test_interrupted_runs_are_found_newest_first(tmp_path: Path) -> None:
    for name in ("killed/facts-5", "older/facts-4", "empty", "done/facts-1"):
        (tmp_path / name).mkdir(parents=True)
    kept(tmp_path / "whole", 1)
    kept(tmp_path / "again", 1)
    (tmp_path / f"again/facts-{DAY_MS + 1}").mkdir()
    (tmp_path / "done/run.json").write_bytes((tmp_path / "whole/run.json").read_bytes())
    assert [run.name for run in interrupted_runs(tmp_path)] == ["again", "killed", "older"]
    assert interrupted_runs(tmp_path / "killed") == [tmp_path / "killed"]
    assert interrupted_runs(tmp_path / "none") == []


@pytest.mark.slow
def test_findings_keep_the_time_of_their_first_run(spark: Any, tmp_path: Path) -> None:
    log = "b1/ledgers/current/0.log"
    kept(tmp_path / "first", 1, finding(ledger_id=1), finding(ledger_id=2), finding(ledger_id=3, entry_id=None))
    kept(
        tmp_path / "second", 2,
        finding(ledger_id=1, first_seen_ms=DAY_MS, runs_seen=2, message="in other words"),
        finding(ledger_id=4, file=f"/mnt/night2/{log}", offset=8),
        offline_root="/mnt/night2",
    )  # fmt: skip
    kept(tmp_path / "third", 3, finding(ledger_id=5, first_seen_ms=7, runs_seen=12))
    (tmp_path / "third" / f"findings-{3 * DAY_MS}/broken.parquet").write_bytes(b"PAR1")
    rows = [
        *(finding(ledger_id=1), finding(ledger_id=3, entry_id=None), finding(ledger_id=5), finding(ledger_id=6)),
        *(finding(ledger_id=4, file=f"/mnt/night9/{log}", offset=8), finding(ledger_id=1, code="BKC402")),
    ]
    found = spark.createDataFrame([tuple(row.get(name) for name in FINDINGS.names) for row in rows], FINDINGS.ddl)
    earlier = earlier_runs(LocalStorage.of(tmp_path / "ninth"), ABOUT)
    assert len(earlier) == 3
    seen = with_history(found, earlier, 9 * DAY_MS, "/mnt/night9")
    result = {
        (row["code"], row["ledger_id"]): (row["first_seen_ms"], row["last_seen_ms"], row["runs_seen"], row["file"])
        for row in seen.collect()
    }
    now = 9 * DAY_MS
    assert result == {
        ("BKC401", 1): (DAY_MS, now, 3, None),
        ("BKC401", 3): (DAY_MS, now, 2, None),
        ("BKC401", 4): (2 * DAY_MS, now, 2, f"/mnt/night9/{log}"),
        ("BKC401", 5): (7, now, 13, None),
        ("BKC401", 6): (now, now, 1, None),
        ("BKC402", 1): (now, now, 1, None),
    }
    assert set(seen.columns) == {*KEPT_FINDINGS.names} - {"suppressed"}
