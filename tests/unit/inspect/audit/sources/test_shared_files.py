"""Files that a run gives to its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.sources.shared_files import SHARED, new_shared_file, parquet_files, path_of, share


def test_a_path_names_itself() -> None:
    assert path_of("/a/b.parquet") == Path("/a/b.parquet")


def test_a_folder_has_its_parquet_files_in_order_and_a_file_is_itself(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "_SUCCESS"):
        (tmp_path / name).touch()
    assert parquet_files(str(tmp_path)) == [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert parquet_files(str(tmp_path / "b.parquet")) == [str(tmp_path / "b.parquet")]
    assert parquet_files(str(tmp_path / "nothing")) == []
    assert parquet_files(f"{SHARED}x.parquet") == [f"{SHARED}x.parquet"]


def test_shared_files_of_one_name_are_private_and_differ() -> None:
    first, second = new_shared_file("plan"), new_shared_file("plan")
    assert first != second
    assert first.name != second.name
    assert first.name.endswith("-plan")
    assert first.parent.stat().st_mode & 0o077 == 0


def test_a_shared_file_is_read_by_the_driver_and_by_tasks(spark: Any) -> None:
    file = new_shared_file("x")
    file.write_text("shared")
    option = share(spark, file)
    assert option == SHARED + file.name
    assert path_of(option) == file
    assert spark.range(1).rdd.map(lambda _: path_of(option).read_text()).collect() == ["shared"]
