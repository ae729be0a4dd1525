"""Storage: what it logs of entries that it cannot read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from bkdaemon.bookie.index import Index, memory_index, rocks_index

from bkctl.codec.checksum import master_key
from bkctl.codec.data_dir import CURRENT
from bkctl.codec.ledger_index import LedgerData, encode_ledger_data
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import CLEAN, config_of, holds_all
from tests.unit.daemon.bookie.world import (
    FENCED,
    HERE,
    IO_ERROR,
    KEY,
    NO_ENTRY,
    OK,
    Unsure,
    config_in,
    entry,
    running,
    sim_disk,
    world_on,
)


async def test_a_missing_entry_log_is_logged_once_a_file(caplog: pytest.LogCaptureFixture) -> None:
    world, config = world_on(sim_disk().door(lambda: True)), config_in(HERE, log_size_limit=20_000)
    async with running(config, world) as calls:
        for ledger_id in (5, 6):
            await calls.add(ledger_id, range(30), payload=bytes(1000))
    current = HERE / "ledgers/current"
    logs = [name for name in world.disk.names(current) if name.endswith(".log")]
    for name in logs:
        world.disk.remove(current / name)
    caplog.set_level(logging.INFO)
    async with running(config, world) as calls:
        for _ in range(2):
            for ledger_id in (5, 6):
                for first in (0, 10, 20):
                    read = await calls.read(ledger_id, *range(first, first + 10))
                    assert [status for status, _ in read] == [IO_ERROR] * 10
            calls.bookie.last_confirmed(5)
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == len(logs) > 2
    assert all(sum(f"/{name} is missing" in text for text in errors) == 1 for name in logs)


async def test_index_rows_of_a_failed_flush_point_to_entries() -> None:
    disk = sim_disk()
    config, made = config_in(HERE), []

    def factory(directory: Path) -> Index:
        made.append(Unsure(disk.door(lambda: True), directory))
        return made[-1]

    async with running(config, world_on(disk.door(lambda: True)), factory, crash=True) as calls:
        assert await calls.add(5, range(3)) == [OK] * 3
        made[-1].fails = True
        flush = calls.bookie.storage.swap()
        flush.entries[0][1][3] = entry(5, 3)  # it has just come, and no journal has it yet
        with pytest.raises(OSError, match="input/output"):
            calls.bookie.storage.flush(flush)
    for _ in range(2):  # first with the journal, then with the index only
        async with running(config, world_on(disk.door(lambda: True)), factory) as calls:
            assert await calls.has(5, range(3))
            ((status, body),) = await calls.read(5, 3)
            assert (status, body) in ((NO_ENTRY, None), (OK, entry(5, 3)))


async def test_entry_logs_of_failed_flushes_are_removed_when_a_flush_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.storage.LOGS_KEPT_MAX", 2)
    door = sim_disk().door(lambda: True)
    config, made = config_in(HERE), []

    def factory(directory: Path) -> Index:
        made.append(Unsure(door, directory))
        return made[-1]

    def logs() -> list[str]:
        return sorted(name for name in door.names(Path(config.ledger_dirs[0]) / CURRENT) if name.endswith(".log"))

    async with running(config, world_on(door), factory) as calls:
        await calls.add(5, range(3))
        flush = calls.bookie.storage.swap()
        made[-1].fails = True
        for tries in range(1, 5):
            with pytest.raises(OSError, match="input/output"):
                calls.bookie.storage.flush(flush)
            assert len(logs()) == min(tries, 2), "a bound"
        made[-1].fails = False
        calls.bookie.storage.flush(flush)
        calls.bookie.storage.flushed()
        assert logs() == ["4.log"]
        assert await calls.has(5, range(3))


async def test_the_last_entry_is_known_after_a_failed_flush_removed_its_log() -> None:
    async with running(config_in(HERE), world_on(sim_disk().door(lambda: True))) as calls:
        await calls.add(5, range(10))
        storage = calls.bookie.storage
        flush = storage.swap()
        flush.rows[5] = "no row"  # type: ignore[assignment]  # fails once the index points into the log
        with pytest.raises(TypeError):
            storage.flush(flush)
        ledger = storage.ledgers[5]
        ledger.loaded, ledger.last = False, -1
        storage.load(ledger)
        assert ledger.last == 9
        assert storage.fetch([], {5}).tails[5][0] == 9


async def test_ledger_rows_in_the_wrong_directory_are_ignored() -> None:
    """Java's offline rebuild tool writes each ledger, fenced and without a key, into every directory."""
    disk = sim_disk()
    config = config_in(HERE, ledger_dirs=("/l0", "/l1"))
    world = world_on(disk.door(lambda: True))
    async with running(config, world) as calls:
        assert await calls.add(5, [0]) == [OK]
    wrong = memory_index(world.disk)(Path("/l0") / CURRENT)
    wrong.store_ledgers({5: encode_ledger_data(LedgerData(b"", fenced=True)), 6: encode_ledger_data(LedgerData(KEY))})
    wrong.close()
    async with running(config, world) as calls:
        assert await calls.add(5, [1]) == [OK]
        assert await calls.has(5, [0, 1])
        assert calls.bookie.knows(6)


@pytest.mark.parametrize("name", CLEAN)
async def test_every_entry_of_java_directories_is_served(golden: Golden, tmp_path: Path, name: str) -> None:
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    world = real_world(1)
    async with running(config, world, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name) > 50
    async with running(config, world, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name) > 50, "after our own stop as well"


async def test_fences_and_master_keys_of_java_directories_are_enforced(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie0")
    config = config_of("bookie0", folder)
    fenced = 0
    async with running(config, real_world(1), rocks_index(config)) as calls:
        for ledger in golden.ledgers("bookie0").values():
            held = calls.bookie.storage.ledger(ledger.id)
            if held is None:
                continue
            assert held.key == master_key(ledger.password)
            if held.fenced:
                fenced += 1
                assert await calls.add(ledger.id, [10**6], key=held.key) == [FENCED]
    assert fenced > 0
