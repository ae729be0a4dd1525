"""A bookie refuses to start where its index does not hold the entries of the entry logs beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import MEMORY_INDEX_NAME, memory_index, rocks_index

from bkctl.codec.data_dir import CURRENT, INDEX_STATE_NAME, decode_index_state
from bkctl.codec.ledger_index import INDEX_REBUILT_NAME
from bkctl.errors import BadBytes, Exit
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import config_of, holds_all
from tests.unit.daemon.bookie.world import NO_LEDGER, OK, Calls, config_in, running, sim_disk, world_on

WORLD = real_world(1)
BOTH = ("locations", "ledgers")


def small(tmp_path: Path, **settings: object) -> BookieConfig:
    """Several small entry logs, one index directory apart from them."""
    return config_in(tmp_path, index_directories=(str(tmp_path / "index"),), log_size_limit=8192, **settings)


async def filled(config: BookieConfig, ledgers: range = range(5)) -> None:
    """Adds 50 entries of 100 bytes to each ledger."""
    async with running(config, WORLD, rocks_index(config)) as calls:
        for ledger_id in ledgers:
            assert set(await calls.add(ledger_id, range(50), payload=b"x" * 100)) == {OK}


async def holds(calls: Calls, ledgers: range = range(5)) -> bool:
    return all([await calls.has(ledger_id, range(50), b"x" * 100) for ledger_id in ledgers])


async def refused(config: BookieConfig) -> BadBytes:
    """The error of a start, which must leave every entry log, mark and journal as it was."""
    before = picture(config)
    with pytest.raises(BadBytes) as caught:
        async with running(config, WORLD, rocks_index(config)):
            pass
    assert picture(config) == before
    return caught.value


def picture(config: BookieConfig) -> dict[str, bytes]:
    """The files outside of the index directory."""
    folders = [Path(d) / CURRENT for d in (*config.ledger_dirs, *config.journal_dirs)]
    paths = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def index_of(config: BookieConfig, number: int = 0) -> Path:
    return Path(config.index_dirs[number]) / CURRENT


def remove(*names: str) -> Callable[[Path], None]:
    def damage(index: Path) -> None:
        for name in names:
            shutil.rmtree(index / name)

    return damage


@pytest.mark.parametrize("lost", [BOTH, ("locations",), ("ledgers",)], ids="+".join)
async def test_a_start_without_a_database_of_the_index_is_refused(tmp_path: Path, lost: tuple[str, ...]) -> None:
    config = small(tmp_path)
    await filled(config)
    remove(*lost)(index_of(config))
    error = await refused(config)
    assert error.exit is Exit.BAD_BYTES
    assert str(index_of(config)) in error.message
    assert f"bkctl index rebuild {index_of(config)}" in str(error.hint)
    assert "bkctl index rebuild -c CONF" in str(error.hint)
    assert not any((index_of(config) / name).exists() for name in lost), "an empty database would hide the loss"


@pytest.mark.parametrize("lost", [BOTH, ("locations",), ("ledgers",)], ids="+".join)
async def test_a_start_on_an_empty_database_is_refused(tmp_path: Path, lost: tuple[str, ...]) -> None:
    config = small(tmp_path)
    await filled(config)
    for number, state in enumerate((True, False)):  # with bkctl.index, and as Java or an older version left it
        if not state:
            (Path(config.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME).unlink()
        fresh = config_in(tmp_path / f"fresh{number}")
        async with running(fresh, WORLD, rocks_index(fresh)):
            pass
        for name in lost:
            shutil.rmtree(index_of(config) / name)
            shutil.copytree(index_of(fresh) / name, index_of(config) / name)
        await refused(config)


@pytest.mark.parametrize("names", [BOTH, ("locations",), ("ledgers",)], ids="+".join)
async def test_a_start_on_an_older_copy_of_the_index_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    config = small(tmp_path)
    await filled(config, range(2))
    shutil.copytree(index_of(config), tmp_path / "copy")
    await filled(config, range(2, 5))
    for name in names:
        shutil.rmtree(index_of(config) / name)
        shutil.copytree(tmp_path / "copy" / name, index_of(config) / name)
    await refused(config)


async def test_a_start_on_older_locations_is_refused_without_a_note_of_their_state(tmp_path: Path) -> None:
    config = small(tmp_path)
    await filled(config, range(2))
    shutil.copytree(index_of(config), tmp_path / "copy")
    await filled(config, range(2, 5))
    remove("locations")(index_of(config))
    shutil.copytree(tmp_path / "copy" / "locations", index_of(config) / "locations")
    (Path(config.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME).unlink()
    await refused(config)


async def test_a_start_is_refused_between_the_steps_of_a_rebuild(tmp_path: Path) -> None:
    config = small(tmp_path)
    await filled(config)
    (index_of(config) / INDEX_REBUILT_NAME).mkdir()
    assert "interrupted" in (await refused(config)).message


async def test_a_database_that_rocksdb_refuses_names_the_command_that_repairs_it(tmp_path: Path) -> None:
    config = small(tmp_path)
    await filled(config)
    for table in (index_of(config) / "locations").glob("*.sst"):
        table.unlink()
    assert "bkctl index rebuild" in str((await refused(config)).hint)


async def test_one_of_several_ledger_directories_without_its_index_is_refused(tmp_path: Path) -> None:
    config = config_in(tmp_path, ledger_dirs=tuple(str(tmp_path / f"l{n}") for n in range(3)))
    await filled(config)
    remove(*BOTH)(index_of(config, 1))
    assert str(index_of(config, 1)) in (await refused(config)).message


async def test_imported_idx_files_do_not_replace_a_lost_index(golden: Golden, tmp_path: Path) -> None:
    """They are older than the entries that were added since the import."""
    folder = golden.unpack("bookie5", tmp_path / "bookie")
    config = config_in(
        folder, ledger_dirs=(str(folder / "ledgers"),), index_directories=(str(folder / "index"),),
        storage_class="org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    )  # fmt: skip
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.add(777_777, range(3)) == [OK] * 3
    remove("locations")(index_of(config))
    await refused(config)


# -- what must start ---------------------------------------------------------------------------------------------------


async def killed_in_a_flush(config: BookieConfig, folder: Path, ledgers: range) -> BookieConfig:
    """A copy of the directories with the entry logs that a flush wrote, before it wrote rows to the index."""
    async with running(config, WORLD, rocks_index(config)) as calls:
        for ledger_id in ledgers:
            assert set(await calls.add(ledger_id, range(50), payload=b"x" * 100)) == {OK}
        shutil.copytree(Path(config.ledger_dirs[0]).parent, folder)
    for log in (Path(config.ledger_dirs[0]) / CURRENT).glob("*.log"):
        shutil.copy2(log, folder / "ledgers" / CURRENT / log.name)
    return small(folder)


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("before", [0, 2])
async def test_a_bookie_killed_between_entry_logs_and_index_starts(tmp_path: Path, before: int, state: bool) -> None:
    """The journal has the entries that have no row; with before=0 no database was ever written to."""
    config = small(tmp_path / "bookie")
    if before:
        await filled(config, range(before))
    killed = await killed_in_a_flush(config, tmp_path / "killed", range(before, 5))
    if not state:
        (Path(killed.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME).unlink()
    async with running(killed, WORLD, rocks_index(killed)) as calls:
        assert await holds(calls)
    remove("locations")(index_of(killed))
    await refused(killed)


@pytest.mark.parametrize("state", [True, False])
async def test_entry_logs_of_deleted_ledgers_do_not_prevent_a_start(tmp_path: Path, state: bool) -> None:
    config = small(tmp_path)
    await filled(config)
    async with running(config, WORLD, rocks_index(config)) as calls:
        await calls.bookie.delete(list(range(5)))
    if not state:
        (Path(config.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME).unlink()
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert [status for status, _ in await calls.read(3, 0)] == [NO_LEDGER]


@pytest.mark.parametrize("name", ["bookie0", "bookie1.killed", "gc_cache_transactional", "direct_io", "several_dirs"])
async def test_javas_directories_start_without_their_index_only_after_it_is_back(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    config = config_of(name, golden.unpack(name, tmp_path / name))
    number = len(config.ledger_dirs) - 1
    shutil.move(index_of(config, number) / "locations", tmp_path / "kept")
    await refused(config)
    shutil.move(tmp_path / "kept", index_of(config, number) / "locations")
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name, only_if_there=True) > 50


async def test_a_new_bookie_notes_the_state_of_its_index_before_the_first_entry(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with running(config, WORLD, rocks_index(config)):
        path = Path(config.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME
        state = decode_index_state(path.read_bytes(), source="state")
        assert {name: number for name, (_, number) in state.items()} == {"locations": 0, "ledgers": 0}
    await filled(config, range(1))
    later = decode_index_state(path.read_bytes(), source="state")
    assert all(later[name][0] == state[name][0] and later[name][1] > 0 for name in state)


async def test_a_damaged_note_is_ignored(tmp_path: Path) -> None:
    config = small(tmp_path)
    await filled(config)
    (Path(config.ledger_dirs[0]) / CURRENT / INDEX_STATE_NAME).write_bytes(b"?\n")
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await holds(calls)


async def test_an_index_in_memory_that_lost_its_file_is_refused() -> None:
    world = world_on(sim_disk().door(lambda: True))
    config = config_in(Path("/b"))
    async with running(config, world, memory_index(world.disk)) as calls:
        assert await calls.add(1, range(3)) == [OK] * 3
    world.disk.remove(index_of(config) / MEMORY_INDEX_NAME)
    with pytest.raises(BadBytes):
        async with running(config, world, memory_index(world.disk)):
            pass
