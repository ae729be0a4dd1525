"""Tables of metadata: one reading of owners' nodes gives the rows of three."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.schemas import CURSORS, METADATA_DAMAGE, TOPICS, Table
from bkinspect.audit.sources.metadata import OWNER_NODES, TopicsReader

from bkctl.codec.managed_ledger import ManagedCursorInfo, encode_cursor_info
from tests.bench import audit as bench

LEDGERS = 30
TOPIC = "/managed-ledgers/public/default/persistent/t0"


def rows_of(table: Table, export: Path) -> list[dict[str, Any]]:
    reader = TopicsReader(table, {"metadata": str(export)})
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_one_reading_gives_the_rows_of_topics_cursors_and_damage(tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    extra = [
        (f"{TOPIC}/sub", encode_cursor_info(ManagedCursorInfo(7)), 0),
        ("/managed-ledgers/public/default/persistent/broken", b"\xff\xff", 0),
        ("/ledgers/cookies/10.0.0.9:3181", b"no cookie", 0),
    ]
    with export.open("w") as file:
        for path, data, ctime in [*bench.nodes(LEDGERS), *extra]:
            row = {"path": path, "data": base64.b64encode(data).decode(), "ctime": ctime}
            file.write(json.dumps(row) + "\n")
    together = rows_of(OWNER_NODES, export)
    counts = {}
    for table in (TOPICS, CURSORS, METADATA_DAMAGE):
        own = [{name: row[name] for name in table.names} for row in together if row["table"] == table.name]
        assert own == rows_of(table, export)
        counts[table.name] = len(own)
    assert counts == {"topics": LEDGERS + 1, "cursors": 1, "metadata_damage": 2}
