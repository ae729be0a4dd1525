"""Files of a scan as columns, and their division into tasks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from bkinspect.audit.facts import LISTED, listed
from bkinspect.audit.sources.directories import ScanFile, find_bookies, scan_files
from bkinspect.audit.sources.file_list import (
    DRIVER_FILES_MAX,
    GROUP_ROWS,
    FileList,
    FilePart,
    FilePlan,
    PlanParts,
    count_files,
)
from bkinspect.audit.storage import LocalStorage

from bkctl.codec.data_dir import encode_cookie
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId

PARTITION_SIZE_MAX = 128
"""Bytes of a partition as Spark gets it: 100,000 tasks take 12 MB of the driver."""


def file_of(number: int, size: int, source: str = "entry_log", suffix: str = "") -> ScanFile:
    mark = (number, 7) if source == "journal" else None
    return ScanFile(f"/d/{number:x}", f"b{number % 3}:1", source, number, suffix, size, 5, number == 9, mark)


def planned(files: list[ScanFile], folder: Path, step: int, bookie_id: str | None = None) -> FilePlan:
    path = folder / "plan"
    path.write_bytes(FileList.of(files).encode())
    return FilePlan(path, step, bookie_id)


def expected_parts(file: ScanFile, step: int) -> list[FilePart]:
    if file.source == "journal" or file.suffix:
        return [FilePart(file, 0, file.size + 1)]
    starts = range(0, max(file.size, 1), step)
    return [FilePart(file, start, file.size + 1 if start == starts[-1] else start + step) for start in starts]


files_of_any_kind = st.builds(
    file_of,
    st.integers(0, 30),
    st.integers(0, 500),
    st.sampled_from(("entry_log", "journal")),
    st.sampled_from(("", "x")),
)


@given(
    st.lists(files_of_any_kind, max_size=12), st.integers(1, 200), st.integers(1, 9), st.sampled_from((None, "b1:1"))
)
def test_each_range_is_in_one_task(
    tmp_path_factory: pytest.TempPathFactory, files: list[ScanFile], step: int, most: int, bookie_id: str | None
) -> None:
    plan = planned(files, tmp_path_factory.mktemp("plan"), step, bookie_id)
    tasks = plan.tasks(most)
    assert len(tasks) <= most
    chosen = [file for file in files if bookie_id in (None, file.bookie_id)]
    assert [part for task in tasks for part in plan.parts(task)] == [
        part for file in chosen for part in expected_parts(file, step)
    ]


def test_a_task_reads_its_own_rows_of_a_long_plan(tmp_path: Path) -> None:
    files = [file_of(number, 100) for number in range(3 * GROUP_ROWS + 5)]
    plan = planned(files, tmp_path, 60)
    middle = 2 * GROUP_ROWS
    for first, last in ((0, 1), (2 * middle - 1, 2 * middle + 3), (2 * len(files) - 1, 2 * len(files))):
        parts = [*plan.parts(PlanParts(first, last))]
        assert [(part.about, part.start) for part in parts] == [
            (files[number // 2], 60 * (number % 2)) for number in range(first, last)
        ]


def test_a_partition_takes_few_bytes_whatever_the_names_of_files_are() -> None:
    assert len(pickle.dumps(PlanParts(1 << 40, 1 << 41))) < PARTITION_SIZE_MAX


def test_files_come_back_as_they_were() -> None:
    files = [file_of(1, 5), file_of(2, 0, "journal"), file_of(9, 1, "entry_log", "log.compacted")]
    rows = FileList.of(files)
    assert [*rows] == files
    assert rows.fingerprints.to_pylist() == [file.fingerprint for file in files]
    assert rows.size_max == 5
    assert FileList.of([]).size_max == 0


def test_more_files_than_the_driver_lists_are_listed_by_tasks(spark: Any, tmp_path: Path) -> None:
    for number, count in enumerate((DRIVER_FILES_MAX, 3)):
        current = tmp_path / f"bookies/{number}/current"
        current.mkdir(parents=True)
        cookie = Cookie(BookieId(f"b{number}:3181"), (str(current.parent),), (str(current.parent),), None, "i")
        (current / "VERSION").write_bytes(encode_cookie(cookie))
        for log_id in range(count):
            (current / f"{log_id:x}.log").touch()
    bookies = find_bookies([tmp_path / "bookies"])
    assert count_files(bookies) > DRIVER_FILES_MAX
    folder = LocalStorage.of(tmp_path / "facts")
    folder.make()
    found = listed(spark, bookies, str(tmp_path / "bookies"), folder)
    assert sorted(found, key=repr) == sorted((file for one in bookies for file in scan_files(one)), key=repr)
    assert not folder.exists(LISTED)
