"""An entry log read in any ranges gives the rows of one range, whatever stands in its payloads.

As a run does it: ranges are read each for itself, those that do not meet are found, and such a file is read whole.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.sources.directories import ScanFile
from bkinspect.audit.sources.file_list import FileList
from bkinspect.audit.sources.scan import PART, SCAN, ScanReader
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.entry_log import encode_header, encode_ledgers_map, encode_map_fields
from bkctl.model.ledger import DigestType

Row = dict[str, Any]
DIGEST = digest_for(DigestType.CRC32C)


def frames(draw: random.Random, count: int, depth: int) -> bytes:
    """Records one behind the other; some payloads are records again, whole or cut, with another shift."""
    made = []
    for entry_id in range(count):
        kind = draw.randrange(16) if depth else 15
        if kind == 0:
            payload = draw.randbytes(draw.randrange(5)) + frames(draw, draw.randrange(1, 40), depth - 1)
        elif kind == 1:
            payload = frames(draw, draw.randrange(1, 40), depth - 1)[: draw.randrange(10, 4000)]
        elif kind == 2:
            payload = bytes(draw.randrange(3000))
        else:
            payload = draw.randbytes(draw.choice((0, 1, 40, 200, 1500)))
        body = encode_entry(draw.choice((3, 7, 1 << 40)), entry_id, entry_id - 1, entry_id * 9, payload, DIGEST)
        made.append(len(body).to_bytes(4, "big") + body)
    return b"".join(made)


def make_log(seed: int, path: Path) -> int:
    """A log of a few dozen records, with a map or without, sometimes with fill and with changed bytes."""
    draw = random.Random(seed)
    data = bytearray(encode_header() + frames(draw, draw.randrange(1, 60), draw.choice((0, 2))))
    if draw.random() < 0.6:
        sizes = {3: 100, 7: 200, 1 << 40: 300}
        at = len(data)
        data += b"".join(encode_ledgers_map(sizes))
        data[8:20] = encode_map_fields(at, len(sizes))
    elif draw.random() < 0.5:
        data += bytes(draw.randrange(1, 5000))
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(1024, len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return len(data)


def write_plan(plan: Path, file: ScanFile) -> None:
    plan.write_bytes(FileList.of([file]).encode())


def read(plan: Path, part_size: int) -> list[Row]:
    reader = ScanReader(SCAN, {"plan": str(plan), "part_size": str(part_size)})
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def meets(rows: list[Row]) -> bool:
    """What `views.SEAMS_SQL` asks: each range begins where the ranges before it said."""
    expected: int | None = None
    for part in sorted((json.loads(row["note"]) for row in rows if row["kind"] == PART), key=lambda one: one["start"]):
        if part["start"] == 0:
            expected = part["next"]
        elif expected is None or expected >= part["end"]:
            if part["first"] is not None:
                return False
        elif part["first"] != expected:
            return False
        else:
            expected = part["next"]
    return True


def without_parts(rows: list[Row]) -> list[str]:
    """Rows as checks see them: an entry without an answer is broken where metadata says CRC32C (views.ENTRIES_SQL)."""
    settled = []
    for row in rows:
        if row["kind"] == "entry" and not row["digest_ok"]:
            row = {**row, "digest_ok": False, "payload_size": row["size"] - 36}
        if row["kind"] != PART:
            settled.append(repr(row))
    return sorted(settled)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), part_size=st.one_of(st.integers(40, 3000), st.integers(3000, 200_000)))
def test_ranges_that_meet_give_the_rows_of_one(seed: int, part_size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "5.log"
        size = make_log(seed, path)
        part_size = max(part_size, size // 40)
        plan = Path(folder) / "plan"
        plan.write_bytes(
            FileList.of([ScanFile(str(path), "b1:3181", "entry_log", 5, "", size, 1, False, None)]).encode()
        )
        whole = read(plan, size + 1)
        rows = read(plan, part_size)
        if not meets(rows):
            rows = whole  # a run reads such a file again
        assert without_parts(rows) == without_parts(whole)


def test_most_logs_can_be_read_in_ranges(tmp_path: Path) -> None:
    """Reading again whole is for logs that deceive: those without records in payloads always meet."""
    for seed in range(30):
        draw = random.Random(seed)
        path = tmp_path / f"{seed:x}.log"
        path.write_bytes(encode_header() + frames(draw, 200, 0))
        size = path.stat().st_size
        plan = tmp_path / f"{seed}.plan"
        plan.write_bytes(
            FileList.of([ScanFile(str(path), "b1:3181", "entry_log", seed, "", size, 1, False, None)]).encode()
        )
        rows = read(plan, size // 7)
        assert meets(rows), seed
        assert without_parts(rows) == without_parts(read(plan, size + 1))
