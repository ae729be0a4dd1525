"""ledgerStorageClass at the start of a bookie: a file that Java's bookie reads otherwise is refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie.config import DB_LEDGER_STORAGE
from bkdaemon.bookie.storage_class import check_storage_class

from bkctl.errors import NotFound, UsageError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import config_of
from tests.unit.daemon.bookie.services import ID, ROOT, config_at, new_cluster, serving
from tests.unit.daemon.bookie.world import OK, Calls

OTHERS = (
    "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "DbLedgerStorage",
    "com.example.DbLedgerStorage",
)


@pytest.mark.parametrize("name", OTHERS)
async def test_another_storage_class_is_refused_before_a_cookie_or_a_file_is_written(tmp_path: Path, name: str) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, storage_class=name)
    with pytest.raises(UsageError, match=f"ledgerStorageClass={name}") as e:
        async with serving(tree, config):
            pass
    assert DB_LEDGER_STORAGE in str(e.value.hint)
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
    with pytest.raises(NotFound):
        await BookieRegistry(MemoryStore(tree), ROOT).cookie(ID)


async def test_another_storage_class_is_refused_on_directories_of_our_own(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, storage_class=DB_LEDGER_STORAGE)
    async with serving(tree, config) as service:
        assert await Calls(service.bookie).add(1, range(3)) == [OK] * 3
    with pytest.raises(UsageError, match="ledgerStorageClass"):
        async with serving(tree, replace(config, storage_class=OTHERS[0])):
            pass
    async with serving(tree, config) as service:
        assert await Calls(service.bookie).has(1, range(3))


@pytest.mark.parametrize(
    ("more", "java_class"),
    [
        ({}, "SortedLedgerStorage"),
        ({"sortedLedgerStorageEnabled": "true"}, "SortedLedgerStorage"),
        ({"sortedLedgerStorageEnabled": "false"}, "InterleavedLedgerStorage"),
    ],
)
async def test_a_missing_storage_class_is_a_warning_that_names_the_class_of_java(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: dict[str, str], java_class: str
) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, storage_class="", unknown=more)
    async with serving(tree, config):
        pass
    (text,) = [r.getMessage() for r in caplog.records if "ledgerStorageClass" in r.getMessage()]
    assert [r.levelno for r in caplog.records if r.getMessage() == text] == [logging.WARNING]
    assert java_class in text
    assert DB_LEDGER_STORAGE in text


async def test_the_class_of_our_storage_gives_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, storage_class=DB_LEDGER_STORAGE)
    async with serving(tree, config):
        pass
    assert "ledgerStorageClass" not in caplog.text


@pytest.mark.parametrize("name", ["bookie5", "bookie6", "several_idx_dirs"])
@pytest.mark.parametrize("storage_class", ["", *OTHERS])
def test_idx_files_are_refused_with_the_way_to_migrate(
    golden: Golden, tmp_path: Path, name: str, storage_class: str
) -> None:
    several = name == "several_idx_dirs"
    folder = golden.unpack("bookie5" if several else name, tmp_path / name)
    config = replace(config_of(name, folder), storage_class=storage_class)
    if several:
        (folder / "more").mkdir()
        config = replace(
            config, ledger_dirs=(str(folder / "more"), *config.ledger_dirs), index_directories=("x", *config.index_dirs)
        )
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="ledgerStorageClass") as e:
        check_storage_class(real_world().disk, config)
    assert f"ledgerStorageClass={DB_LEDGER_STORAGE}" in str(e.value.hint)
    assert sorted(tmp_path.rglob("*")) == before
