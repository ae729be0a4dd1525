"""An index is rebuilt from entry logs and journals: by itself, after a kill at any step, on Java's directories."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import RocksIndex, rocks_index
from bkinspect.finding import Finding
from bkinspect.fsck import IndexCounts, check_index
from bkinspect.layout import Layout, layout_of
from bkinspect.ledger_index import IndexedLedger, find_indexes, ledgers
from bkinspect.rocks import database_state
from bkrecovery.index_rebuild import Rebuilt, check_stopped, locked, plan, rebuild

from bkctl.codec.data_dir import CURRENT, INDEX_STATE_NAME
from bkctl.codec.entry import encode_lac
from bkctl.codec.ledger_index import INDEX_REBUILT_NAME, STORAGE_FLAGS_KEY, encode_storage_flags
from bkctl.errors import BadBytes, Refused
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import CLEAN, config_of, holds_all
from tests.unit.daemon.bookie.world import DIGEST, FENCED, KEY, OK, UNAUTHORIZED, Calls, config_in, running

WORLD = real_world(1)
LEDGERS = range(6)


def small(folder: Path) -> BookieConfig:
    """Several small entry logs; the index is apart from them."""
    return config_in(folder, index_directories=(str(folder / "index"),), log_size_limit=8192)


def layout(config: BookieConfig) -> Layout:
    lists = config.journal_dirs, config.ledger_dirs, config.index_dirs
    return layout_of(*([Path(d) for d in part] for part in lists))


def index_of(config: BookieConfig, number: int = 0) -> Path:
    return Path(config.index_dirs[number]) / CURRENT


def lose(config: BookieConfig, *names: str) -> None:
    for number in range(len(config.index_dirs)):
        for name in names:
            shutil.rmtree(index_of(config, number) / name)


def rebuilt(config: BookieConfig, step: Callable[[str], None] = lambda _: None) -> list[Rebuilt]:
    found = layout(config)
    with locked(found):
        return rebuild(found, step=step)


def known(config: BookieConfig) -> dict[int, IndexedLedger]:
    return {ledger.ledger_id: ledger for index in find_indexes(index_of(config)) for ledger in ledgers(index)}


def findings(config: BookieConfig) -> list[Finding]:
    return list(check_index(layout(config), IndexCounts()))


async def fill(calls: Calls) -> None:
    """Six ledgers of 50 entries; ledger 2 is fenced, ledger 3 has an explicit LAC."""
    for ledger_id in LEDGERS:
        assert set(await calls.add(ledger_id, range(50), payload=b"x" * 100)) == {OK}
    assert await calls.fence(2) == OK
    assert await calls.write_lac(3, encode_lac(3, 41, DIGEST)) == OK


async def written(config: BookieConfig) -> None:
    async with running(config, WORLD, rocks_index(config)) as calls:
        await fill(calls)


async def serves(config: BookieConfig) -> None:
    async with running(config, WORLD, rocks_index(config)) as calls:
        for ledger_id in LEDGERS:
            assert await calls.has(ledger_id, range(50), b"x" * 100)
        assert await calls.add(2, [50]) == [FENCED]
        assert await calls.add(4, [50], key=b"another key of 20 by") == [UNAUTHORIZED]
        assert calls.bookie.last_confirmed(3) >= 41


class Killed(Exception):
    """The end of a process."""


async def start_is_refused(config: BookieConfig) -> bool:
    try:
        async with running(config, WORLD, rocks_index(config)):
            return False
    except BadBytes:
        return True


LOSSES = pytest.mark.parametrize("lost", [("locations",), ("ledgers",), ("locations", "ledgers"), ()], ids="+".join)


@LOSSES
async def test_a_rebuilt_index_serves_every_entry_with_its_key_fence_and_lac(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    config = small(tmp_path)
    await written(config)
    before = known(config)
    lose(config, *lost)
    (found,) = rebuilt(config)
    assert (found.entries, found.ledgers, found.without_key) == (300, 6, 0)
    assert found.fenced_here == (0 if "ledgers" not in lost else 5)
    assert len(found.backups) == 2 - len(lost)
    after = known(config)
    assert {i: (row.entries, row.master_key, row.explicit_lac) for i, row in after.items()} == {
        i: (row.entries, row.master_key, row.explicit_lac) for i, row in before.items()
    }
    assert findings(config) == []
    await serves(config)


async def test_several_ledger_directories_that_hold_their_indexes_are_rebuilt(tmp_path: Path) -> None:
    config = config_in(tmp_path, ledger_dirs=tuple(str(tmp_path / f"l{n}") for n in range(3)), log_size_limit=8192)
    await written(config)
    lose(config, "locations", "ledgers")
    assert [(found.entries, found.ledgers) for found in rebuilt(config)] == [(100, 2)] * 3
    assert findings(config) == []
    await serves(config)


async def test_fences_are_kept_as_they_were_while_the_old_ledgers_are_there(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    lose(config, "locations")
    rebuilt(config)
    assert [i for i, row in known(config).items() if row.fenced] == [2]


async def test_a_deleted_ledger_stays_deleted_if_the_old_ledgers_are_those_of_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    config = small(tmp_path)
    await written(config)
    async with running(config, WORLD, rocks_index(config)) as calls:
        await calls.bookie.delete([1, 5])
    lose(config, "locations")
    rebuilt(config)
    assert list(known(config)) == [0, 2, 3, 4]
    assert findings(config) == []
    (tmp_path / "ledgers" / CURRENT / INDEX_STATE_NAME).unlink()
    rebuilt(config)
    assert list(known(config)) == [0, 1, 2, 3, 4, 5], "nothing says that no ledger is missing"
    with locked(layout(config)):
        (tmp_path / "ledgers" / CURRENT / INDEX_STATE_NAME).unlink()
        rebuild(layout(config), existing={0, 2, 3, 4, 5})
    assert list(known(config)) == [0, 2, 3, 4, 5]


async def test_every_ledger_is_fenced_if_the_old_ledgers_are_older_than_the_entry_logs(tmp_path: Path) -> None:
    """A fence may have come after the copy."""
    config = small(tmp_path)
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.add(1, range(3)) == [OK] * 3
    shutil.copytree(index_of(config), tmp_path / "copy")
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.fence(1) == OK
    for path in (tmp_path / "journal" / CURRENT).iterdir():
        path.unlink()
    for path in (tmp_path / "ledgers" / CURRENT).glob("lastMark*"):
        path.unlink()
    lose(config, "ledgers")
    shutil.copytree(tmp_path / "copy" / "ledgers", index_of(config) / "ledgers")
    rebuilt(config)
    assert known(config)[1].fenced


async def test_a_ledger_without_a_known_key_is_bound_by_the_first_client_that_recovers_it(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    lose(config, "ledgers")
    for path in (tmp_path / "journal" / CURRENT).iterdir():
        path.unlink()
    for path in (tmp_path / "ledgers" / CURRENT).glob("lastMark*"):
        path.unlink()
    (found,) = rebuilt(config)
    assert (found.without_key, found.fenced_here) == (6, 6)
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.has(4, range(50), b"x" * 100)
        assert await calls.fence(4, KEY) == OK
        assert await calls.fence(4, b"another key of 20 by") == UNAUTHORIZED


async def test_the_newest_entry_log_wins_where_an_entry_lies_in_several(tmp_path: Path) -> None:
    config = small(tmp_path)
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.add(1, range(3), payload=b"old") == [OK] * 3
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.add(1, range(3), payload=b"new") == [OK] * 3
    lose(config, "locations", "ledgers")
    rebuilt(config)
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await calls.has(1, range(3), b"new")


async def test_entries_that_only_the_journal_has_are_replayed_after_a_rebuild(tmp_path: Path) -> None:
    config = small(tmp_path / "bookie")
    async with running(config, WORLD, rocks_index(config)) as calls:
        await fill(calls)
        shutil.copytree(tmp_path / "bookie", tmp_path / "killed")
    killed = small(tmp_path / "killed")
    lose(killed, "locations", "ledgers")
    (found,) = rebuilt(killed)
    assert (found.entries, found.ledgers) == (0, 6)
    await serves(killed)


async def test_a_rebuild_that_was_killed_at_any_step_can_be_run_again(tmp_path: Path) -> None:
    """In between every start is refused; the keys and fences of the old `ledgers` are not lost."""
    config = small(tmp_path / "sound")
    await written(config)
    for path in (tmp_path / "sound/journal" / CURRENT).iterdir():
        path.unlink()  # what is known of keys and fences is in the old ledgers only
    for path in (tmp_path / "sound/ledgers" / CURRENT).glob("lastMark*"):
        path.unlink()
    shutil.rmtree(index_of(config) / "locations")
    names: list[str] = []
    shutil.copytree(tmp_path / "sound", tmp_path / "counted")
    rebuilt(small(tmp_path / "counted"), names.append)
    assert len(names) > 10
    for count in range(len(names)):
        folder = tmp_path / str(count)
        shutil.copytree(tmp_path / "sound", folder)
        killed, left = small(folder), iter(range(count))

        def step(name: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed(name)

        with pytest.raises(Killed):
            rebuilt(killed, step)
        assert await start_is_refused(killed)
        rebuilt(killed)
        await serves(killed)
        assert [i for i, row in known(killed).items() if row.fenced] == [2]
        assert findings(killed) == []
        assert not (index_of(killed) / INDEX_REBUILT_NAME).exists()


async def test_rows_that_are_not_ledgers_are_kept(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    index = RocksIndex(index_of(config), config)
    index._ledgers.put(STORAGE_FLAGS_KEY, encode_storage_flags(1))
    index.close()
    rebuilt(config)
    index = RocksIndex(index_of(config), config)
    assert index._ledgers.get(STORAGE_FLAGS_KEY) == encode_storage_flags(1)
    index.close()


async def test_a_damaged_entry_log_is_reported_and_its_other_entries_are_indexed(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    log = tmp_path / "ledgers" / CURRENT / "1.log"
    data = bytearray(log.read_bytes())
    data[1024:1028] = b"\xff" * 4
    log.write_bytes(data)
    reported: list[Finding] = []
    with locked(layout(config)):
        (found,) = rebuild(layout(config), report=reported.append)
    assert 290 <= found.entries < 300
    assert {finding.file for finding in reported} == {str(log)}


async def test_a_running_bookie_is_refused(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    found = layout(config)
    with locked(found), pytest.raises(Refused, match="a bookie is running"), locked(found):
        pass
    with locked(found), pytest.raises(Refused, match="a bookie is running"):
        check_stopped(found)
    check_stopped(found)


def test_idx_files_that_were_not_imported_are_refused(golden: Golden, tmp_path: Path) -> None:
    config = config_of("bookie5", golden.unpack("bookie5", tmp_path / "bookie"))
    with pytest.raises(Refused, match=r"\.idx"):
        plan(layout(config))


async def test_the_note_of_the_rebuilt_index_is_that_of_its_databases(tmp_path: Path) -> None:
    config = small(tmp_path)
    await written(config)
    lose(config, "locations", "ledgers")
    rebuilt(config)
    lines = (tmp_path / "ledgers" / CURRENT / INDEX_STATE_NAME).read_text().splitlines()
    states = {name: database_state(index_of(config) / name) for name in ("ledgers", "locations")}
    assert lines == [f"{name} {state[0]} {state[1]}" for name, state in states.items() if state is not None]


@pytest.mark.parametrize("name", [*CLEAN, "bookie1.killed"])
async def test_javas_directories_are_rebuilt(golden: Golden, tmp_path: Path, name: str) -> None:
    config = config_of(name, golden.unpack(name, tmp_path / name))
    ours = {f.code for f in findings(config)}
    lose(config, "locations", "ledgers")
    found = rebuilt(config)
    assert len(found) == len(config.ledger_dirs)
    if name == "gc_cache_transactional":  # a collected ledger is back, a journal before the mark has it
        assert {f.code for f in findings(config)} == {"BKC306"}
        existing = {row.id for row in golden.ledgers(name).values() if not row.deleted}
        lose(config, "locations", "ledgers")
        with locked(layout(config)):
            rebuild(layout(config), existing=existing)
    assert {f.code for f in findings(config)} == ours == set()
    async with running(config, WORLD, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name, only_if_there=name.endswith(".killed")) > 50
