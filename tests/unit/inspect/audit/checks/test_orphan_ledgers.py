"""Ledgers without an owner, where DistributedLog's nodes name some of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Request, run
from bkinspect.audit.results import opened

from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.meta.paths import ledger_path
from bkctl.meta.uri import LedgerManager
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

CHECKS = ("orphan-ledgers", "missing-ledgers", "open-ledgers")
STREAM = "/distributedlog/orders/<default>"
COMPLETED, IN_PROGRESS, ALLOCATED, UNNAMED, TAGGED = range(1, 6)
PULSAR = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": b"t/n/persistent/x"}
SEGMENTS = {
    f"{STREAM}/ledgers/logrecs_000000000000000001_000000000000000009": f"{9 << 32 | 5};{COMPLETED};1;9;0;9;9;0;1;0;0;0",
    f"{STREAM}/ledgers/inprogress_000000000000000010": f"5;{IN_PROGRESS};10;2;0;0;0",
    f"{STREAM}/allocation": str(ALLOCATED),
}


def metadata(state: LedgerState, custom: Mapping[str, bytes] | None = None) -> LedgerMetadata:
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        format_version=3, ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, state=state,
        length=0 if closed else None, last_entry_id=-1 if closed else None, digest_type=DigestType.CRC32C,
        password=b"", ctime_ms=1_600_000_000_000, custom_metadata=custom or {},
        ensembles=(Ensemble(0, (BookieId("b1:3181"),)),),
    )  # fmt: skip


def findings(spark: SparkSession, folder: Path, nodes: Mapping[str, str]) -> set[tuple[str, int]]:
    """(code, ledger) of each finding of an audit of an export with five ledgers and these nodes."""
    ledgers = {
        COMPLETED: metadata(LedgerState.CLOSED),
        IN_PROGRESS: metadata(LedgerState.OPEN),
        ALLOCATED: metadata(LedgerState.OPEN),
        UNNAMED: metadata(LedgerState.CLOSED),
        TAGGED: metadata(LedgerState.CLOSED, PULSAR),
    }
    data = {
        ledger_path("/ledgers", LedgerManager.HIERARCHICAL, ledger_id): encode_metadata(one)
        for ledger_id, one in ledgers.items()
    }
    data |= {path: text.encode() for path, text in nodes.items()}
    lines = [{"path": path, "data": base64.b64encode(value).decode()} for path, value in data.items()]
    export = folder / "export.jsonl"
    export.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(spark, Request(Sources(str(export)), folder / "run", CHECKS))
    with opened(folder / "run") as results:
        return {(str(one["code"]), int(str(one["ledger_id"]))) for one in results.findings()}


def test_ledgers_of_distributedlog_have_an_owner(spark: SparkSession, tmp_path: Path) -> None:
    found = findings(spark, tmp_path, SEGMENTS)
    assert ("BKC415", UNNAMED) in found
    assert not {ledger_id for _, ledger_id in found} & {COMPLETED, TAGGED}
    assert not {pair for pair in found if pair[0] == "BKC415"} - {("BKC415", UNNAMED)}


def test_a_segment_whose_ledger_has_no_metadata_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    lost = {
        f"{STREAM}/ledgers/logrecs_10_19": f"{9 << 32 | 5};77;10;9;0;19;9;0;2;0;0;0",
        "/distributedlog/x/a/allocation": "78",
    }
    found = findings(spark, tmp_path, SEGMENTS | lost)
    assert {pair for pair in found if pair[0] == "BKC413"} == {("BKC413", 77)}


def test_a_damaged_segment_may_name_any_untagged_ledger(spark: SparkSession, tmp_path: Path) -> None:
    found = findings(spark, tmp_path, SEGMENTS | {f"{STREAM}/ledgers/logrecs_20_29": "not a segment"})
    assert not {ledger_id for code, ledger_id in found if code == "BKC415"}
