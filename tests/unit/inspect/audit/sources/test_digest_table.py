"""Digests are looked up where they are, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from bkinspect.audit.sources.digest_table import GROUPS_MAX, DigestTable
from bkinspect.audit.sources.scan import known_digests

from bkctl.model.ledger import DigestType

ROWS_A_GROUP = 100


def written(file: Path, ledger_ids: list[int]) -> str:
    rows = pa.table(
        {
            "ledger_id": pa.array(ledger_ids, pa.int64()),
            "digest_type": [("MAC", "CRC32", "DUMMY")[one % 3] for one in ledger_ids],
            "password": [None if one % 3 else b"p%d" % one for one in ledger_ids],
        }
    )
    parquet.write_table(rows, file, row_group_size=ROWS_A_GROUP)
    return str(file)


def of(table: DigestTable, *ledger_ids: int) -> dict[int, DigestType]:
    return {one: digest.type for one, digest in table.of(np.array(sorted(ledger_ids))).items()}


def test_ledgers_are_found_in_their_row_groups_and_others_are_not(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{n}.parquet", list(range(1000 * n, 1000 * n + 900, 2))) for n in range(3)]
    table = DigestTable(files)
    assert of(table, 0, 1, 4, 898, 900, 2002, 5000) == {
        0: DigestType.HMAC,
        4: DigestType.CRC32,
        898: DigestType.CRC32,
        2002: DigestType.CRC32,
    }
    assert table.reads == 3
    assert table.of(np.array([6]))[6].compute(b"m" * 32, b"x") != table.of(np.array([12]))[12].compute(b"m" * 32, b"x")


def test_files_in_any_order_and_with_overlapping_groups_are_found_too(tmp_path: Path) -> None:
    one = written(tmp_path / "one.parquet", [*range(999, 0, -3)])
    other = written(tmp_path / "other.parquet", [*range(1, 1000, 3)])
    table = DigestTable([one, other])
    assert set(of(table, *range(1001))) == {*range(999, 0, -3), *range(1, 1000, 3)}


def test_row_groups_in_memory_are_bounded(tmp_path: Path) -> None:
    table = DigestTable([written(tmp_path / "a.parquet", list(range(ROWS_A_GROUP * (GROUPS_MAX + 9))))])
    for first in range(0, ROWS_A_GROUP * (GROUPS_MAX + 9), ROWS_A_GROUP):
        assert of(table, first, first + 1).keys() == {first, first + 1}
    assert table.reads == GROUPS_MAX + 9
    assert len(table._groups) == GROUPS_MAX
    of(table, ROWS_A_GROUP * (GROUPS_MAX + 8))
    assert table.reads == GROUPS_MAX + 9


@pytest.mark.parametrize("name", ["", "a.parquet"])
def test_the_option_names_a_folder_or_a_file(tmp_path: Path, name: str) -> None:
    written(tmp_path / "a.parquet", [3, 4])
    assert known_digests({"digests": str(tmp_path / name)}).of(np.array([3, 5])).keys() == {3}


def test_without_the_option_no_digest_is_known() -> None:
    nothing: Any = known_digests({})
    assert nothing.of(np.array([3])) == {}
