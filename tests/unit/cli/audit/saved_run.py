"""Runs as `bkctl audit run` leaves them, without Spark, for the tests of the verbs that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import FINDINGS, LEDGERS, arrow_schema

from tests.command_line import Answer

FINDING = {
    "code": "BKC401",
    "severity": "error",
    "subject": "entry 3 of ledger 5",
    "message": "b1:3181 has no copy; 1 sound elsewhere",
    "evidence": '{"last_entry_id": 4}',
    "next": "bkctl audit repair",
    "ledger_id": 5,
    "entry_id": 3,
    "bookie_id": "b1:3181",
}
ABOUT: dict[str, Any] = {
    "format": 1,
    "as_of_ms": 1_795_000_000_000,
    "seconds": 1.5,
    "metadata": "export.jsonl",
    "offline": [],
    "selection": {},
    "checks": ["missing-copies"],
    "counts": {"BKC401": 1},
    "severities": {"error": 1},
    "notes": [],
    "files_read": 0,
    "files_kept": 0,
    "facts": "facts-1",
    "findings": "findings-1",
    "scans": {},
}


def made(folder: Path, *findings: dict[str, Any], **about: Any) -> Path:
    """A run as `audit run` leaves it."""
    for name in ("facts-1/ledgers", "findings-1"):
        (folder / name).mkdir(parents=True)
    rows = [{name: row.get(name) for name in FINDINGS.names} for row in findings]
    parquet.write_table(pa.Table.from_pylist(rows, arrow_schema(FINDINGS)), folder / "findings-1/part.parquet")
    ledger = {**dict.fromkeys(LEDGERS.names), "ledger_id": 5, "state": "OPEN"}
    parquet.write_table(pa.Table.from_pylist([ledger], arrow_schema(LEDGERS)), folder / "facts-1/ledgers/part.parquet")
    (folder / "run.json").write_text(json.dumps({**ABOUT, **about}))
    return folder


def refused(answer: Answer, code: int, *words: str) -> None:
    """Checks that a command failed with this code and one error, which has these words, and printed no data."""
    assert answer.code == code, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    errors = [line for line in answer.stderr.splitlines() if line.startswith("error")]
    assert len(errors) == 1, answer.stderr
    for word in words:
        assert word in answer.stderr
