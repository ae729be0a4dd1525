"""The import of .idx files: Java's Interleaved and Sorted directories become rows of the index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie.index import rocks_index

from bkctl.errors import UsageError
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import config_of, holds_all
from tests.unit.daemon.bookie.world import running


@pytest.mark.parametrize("name", ["bookie5", "bookie6", "log_per_ledger", "journal5_idx0"])
async def test_idx_files_are_imported_only_if_the_storage_class_names_db_ledger_storage(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    with pytest.raises(UsageError, match="Interleaved or Sorted"):
        async with running(replace(config, storage_class=""), real_world(1), rocks_index(config)):
            pass
    for _ in range(2):
        async with running(config, real_world(1), rocks_index(config)) as calls:
            assert await holds_all(calls, golden, name) > 50
            assert not (folder / "index/current/bkctl.importing").exists()
