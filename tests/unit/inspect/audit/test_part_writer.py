"""Parquet files of limited size, each with whole source files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit import part_writer
from bkinspect.audit.collected import Part
from bkinspect.audit.part_writer import PartWriter
from bkinspect.audit.schemas import LOG_MAPS, arrow_schema
from bkinspect.audit.storage import LocalStorage


def batch(first: int, rows: int) -> Any:
    values = [{"bookie_id": "b", "file": "f", "ledger_id": first + i, "size": i} for i in range(rows)]
    return pa.RecordBatch.from_pylist(values, arrow_schema(LOG_MAPS))


def test_a_part_ends_after_the_source_file_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_writer, "ROWS_A_PART", 5)
    writer = PartWriter(LocalStorage.of(tmp_path), "scan/maps", LOG_MAPS)
    for first, sizes in ((0, (3, 1)), (10, (2, 2)), (20, (1,))):
        for size in sizes:
            writer.write(batch(first, size))
        writer.end_file()
    parts = writer.close()
    assert [(part.path, part.rows, part.files) for part in parts] == [
        ("scan/maps/0.parquet", 8, 2),
        ("scan/maps/1.parquet", 1, 1),
    ]
    for part in parts:
        file = tmp_path / part.path
        assert part == Part("log_maps", part.path, file.stat().st_size, part.rows, part.files)
        assert parquet.read_metadata(file).num_rows == part.rows
    read = parquet.read_table(tmp_path / parts[0].path)
    assert read.schema.names == list(LOG_MAPS.names)
    assert read["ledger_id"].to_pylist() == [0, 1, 2, 0, 10, 11, 10, 11]


def test_without_rows_no_folder_is_created(tmp_path: Path) -> None:
    writer = PartWriter(LocalStorage.of(tmp_path), "scan", LOG_MAPS)
    writer.end_file()
    assert writer.close() == []
    assert list(tmp_path.iterdir()) == []


def test_the_path_is_that_of_the_next_part(tmp_path: Path) -> None:
    writer = PartWriter(LocalStorage.of(tmp_path), "scan", LOG_MAPS)
    assert writer.path == "scan/0.parquet"
    writer.write(batch(0, 1))
    writer.roll()
    assert writer.path == "scan/1.parquet"
