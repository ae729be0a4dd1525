"""The bookie without sockets: what it accepts, refuses, remembers across restarts, and never says too early."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie.bookie import HIGH_PRIORITY, RECOVERY_ADD
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import Index, IndexFactory, memory_index, rocks_index

from bkctl.codec.data_dir import CURRENT, decode_mark
from bkctl.codec.entry import encode_lac
from bkctl.codec.ledger_index import LedgerData, encode_ledger_data
from bkctl.world import World, real_world
from tests.unit.daemon.bookie.world import (
    BAD_REQUEST,
    DIGEST,
    FENCED,
    IO_ERROR,
    KEY,
    NO_ENTRY,
    NO_LEDGER,
    OK,
    OTHER_KEY,
    READ_ONLY,
    TOO_MANY,
    UNAUTHORIZED,
    Calls,
    Unsure,
    config_in,
    entry,
    running,
    sim_disk,
    world_on,
)

HERE = Path("/bookie")


@pytest.fixture
def world() -> World:
    return world_on(sim_disk().door(lambda: True))


@pytest.fixture(params=["memory", "rocksdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[BookieConfig, World, IndexFactory]:
    """Both indexes: a simulated disk with the one in memory, real files with RocksDB."""
    if request.param == "memory":
        config, world = config_in(HERE), world_on(sim_disk().door(lambda: True))
        return config, world, memory_index(world.disk)
    config, world = config_in(tmp_path), real_world(1)
    return config, world, rocks_index(config)


async def test_what_was_added_is_read(place: tuple[BookieConfig, World, IndexFactory]) -> None:
    async with running(*place) as calls:
        assert await calls.add(5, range(100)) == [OK] * 100
        assert await calls.has(5, range(100)), "from memory"
        await calls.bookie.flush()
        assert await calls.has(5, range(100)), "from the entry log"
        assert await calls.has(5, range(100)), "from the read cache"
        assert await calls.read(5, -1) == [(OK, entry(5, 99))]
        assert await calls.read(5, 100, -7) == [(NO_ENTRY, None)] * 2
        assert await calls.read(6, 0, -1) == [(NO_LEDGER, None)] * 2
        assert calls.bookie.list_entries(5) == (OK, list(range(100)))
        assert calls.bookie.list_entries(6) == (NO_LEDGER, [])
        assert calls.bookie.last_confirmed(5) == 98
        assert calls.bookie.last_confirmed(6) == -1


async def test_a_stop_and_a_start_keep_everything(place: tuple[BookieConfig, World, IndexFactory]) -> None:
    packet = encode_lac(5, 60, DIGEST)
    async with running(*place) as calls:
        await calls.add(5, range(50))
        await calls.add(6, range(10, 20))
        assert await calls.write_lac(5, packet) == OK
        assert await calls.fence(6) == OK
    async with running(*place) as calls:
        assert await calls.has(5, range(50))
        assert await calls.has(6, range(10, 20))
        assert calls.bookie.last_confirmed(5) == 60
        assert calls.bookie.last_confirmed(6) == 18
        assert calls.bookie.read_lac(5) == (OK, packet, entry(5, 49))
        assert await calls.read(6, -1) == [(OK, entry(6, 19))]
        assert await calls.add(6, [20]) == [FENCED]
        assert await calls.add(6, [20], flags=RECOVERY_ADD) == [OK]
        assert await calls.add(5, [50], key=OTHER_KEY) == [UNAUTHORIZED]
        assert await calls.add(5, [50]) == [OK]


@pytest.mark.parametrize("flush_first", [False, True])
async def test_a_crash_loses_nothing_that_was_acknowledged(flush_first: bool) -> None:
    for seed in range(20):
        disk = sim_disk(seed)
        config = config_in(HERE)
        world = world_on(disk.door(lambda: True))
        packet = encode_lac(7, 3, DIGEST)
        async with running(config, world, crash=True) as calls:
            await calls.add(5, range(30), payload=bytes(700))
            if flush_first:
                await calls.bookie.flush()
            assert await calls.fence(6) == OK, "a ledger it had not known"
            assert await calls.write_lac(7, packet) == OK
            await calls.add(5, range(30, 60), payload=bytes(700))
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            assert await calls.has(5, range(60), payload=bytes(700))
            assert await calls.add(6, [0]) == [FENCED]
            assert calls.bookie.read_lac(7)[1] == packet
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True))) as calls:
            assert await calls.has(5, range(60), payload=bytes(700)), "replaying twice is replaying once"


async def test_a_group_that_power_interrupts_is_whole_or_gone() -> None:
    """The sectors of the last write reach the disk in any subset; no half entry may come back."""
    outcomes = set()
    for seed in range(60):
        disk = sim_disk(seed)
        config = config_in(HERE)
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            assert await calls.add(5, range(3)) == [OK] * 3
            journal = calls.bookie.journals[0]
            journal._sync = False  # type: ignore[attr-defined]  # the power goes before the sync
            await calls.add(5, range(2, 9), payload=bytes(range(256)) * 5)
        disk.lose_power()
        async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
            found = [body for _, body in await calls.read(5, *range(9))]
            old = [entry(5, e) for e in range(3)] + [None] * 6
            new = old[:2] + [entry(5, e, bytes(range(256)) * 5) for e in range(2, 9)]
            assert found in (old, new)
            outcomes.add(found == new)
    assert False in outcomes


async def test_what_is_refused(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        assert await calls.add(5, [0, 1]) == [OK, OK]
        mixed = [
            (5, 2, KEY, entry(5, 2), 0, None),
            (5, 3, OTHER_KEY, entry(5, 3), 0, None),
            (5, -0x1000, KEY, entry(5, 3), 0, None),
            (-1, 3, KEY, entry(5, 3), 0, None),
            (5, 4, KEY, bytes(23), 0, None),
            (5, 5, KEY, bytes(24), 0, None),
            (8, 0, OTHER_KEY, entry(8, 0), 0, None),
        ]
        assert await calls.add_raw(mixed) == [OK, UNAUTHORIZED, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST, OK, OK]
        assert await calls.fence(5, OTHER_KEY) == UNAUTHORIZED
        assert await calls.write_lac(5, encode_lac(5, 1, DIGEST), OTHER_KEY) == UNAUTHORIZED
        assert await calls.write_lac(5, b"short") == BAD_REQUEST
        assert await calls.add(8, [1]) == [UNAUTHORIZED], "the first key is the ledger's"
        assert await calls.fence(-3) == BAD_REQUEST


async def test_written_again_is_read_again(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        await calls.add(5, range(10), payload=b"old")
        await calls.bookie.flush()
        assert await calls.has(5, range(10), payload=b"old")
        await calls.fence(5)
        await calls.add(5, [4], payload=b"new", flags=RECOVERY_ADD)
        assert await calls.has(5, [4], payload=b"new")
        await calls.bookie.flush()
        assert await calls.has(5, [4], payload=b"new"), "not what the read cache had"
        assert await calls.has(5, [3, 5], payload=b"old")
    async with running(config_in(HERE), world) as calls:
        await calls.read(5, 3, 4)
        await calls.add(5, [3], payload=b"newer", flags=RECOVERY_ADD)
        await calls.bookie.flush()
        assert await calls.has(5, [3], payload=b"newer")


async def test_fences(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        await calls.add(5, [0])
        assert await asyncio.gather(*(calls.fence(5) for _ in range(3))) == [OK] * 3
        assert await calls.fence(5) == OK
        assert await calls.add(5, [1]) == [FENCED]
        assert await calls.fence(9) == OK
        assert await calls.read(9, 0) == [(NO_ENTRY, None)], "known by its fence, and empty"
        calls.bookie.gate.add_reason("manual", "a test")
        assert await calls.fence(10) == OK, "a read-only bookie fences"


async def test_long_polls_are_woken(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        bookie = calls.bookie
        await calls.add(5, range(3))
        woken: list[str] = []

        def wait(name: str, previous: int, ledger_id: int = 5) -> object:
            return bookie.wait_lac(ledger_id, previous, lambda: woken.append(name))

        wait("passed already", 0)
        wait("no such ledger", 0, ledger_id=77)
        await asyncio.sleep(0)
        assert woken == ["passed already", "no such ledger"]
        woken.clear()
        wait("next", 1)
        wait("later", 2)
        cancel = bookie.wait_lac(5, 1, lambda: woken.append("cancelled"))
        cancel()
        await calls.add(5, [3])
        assert woken == ["next"]
        await calls.write_lac(5, encode_lac(5, 2, DIGEST))
        assert woken == ["next", "later"], "an explicit LAC wakes all"
        wait("fence", 90)
        await calls.fence(5)
        wait("deleted", 90)
        await bookie.delete([5])
        assert woken == ["next", "later", "fence", "deleted"]
        assert not bookie.knows(5)


async def test_deleted_ledgers_are_gone(place: tuple[BookieConfig, World, IndexFactory]) -> None:
    async with running(*place) as calls:
        for ledger_id in (5, 6, 7):
            await calls.add(ledger_id, range(5))
        await calls.fence(5)
        await calls.bookie.flush()
        await calls.add(5, [5], flags=RECOVERY_ADD)
        await calls.bookie.delete([5, 7])
        assert await calls.read(5, 0, 5) == [(NO_LEDGER, None)] * 2
        assert await calls.has(6, range(5))
        assert await calls.add(5, [6]) == [FENCED], "its writer does not come back"
        assert await calls.fence(5) == NO_LEDGER
        assert await calls.add(7, [0]) == [OK], "but an unfenced one may"
    async with running(*place) as calls:
        assert not calls.bookie.knows(5)
        assert await calls.has(6, range(5))
        assert [status for status, _ in await calls.read(7, 0, 1)] == [OK, NO_ENTRY]


async def test_a_lost_sync_is_never_acknowledged() -> None:
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
        assert await calls.add(5, range(3)) == [OK] * 3
        disk.error_chance = 1.0
        assert await calls.add(5, [3]) == [IO_ERROR]
        disk.error_chance = 0.0
        assert calls.bookie.read_only
        assert "journal" in calls.bookie.gate.reasons
        assert await calls.add(5, [4]) == [READ_ONLY]
        assert await calls.fence(5) == IO_ERROR, "nor is a fence promised"
        assert await calls.has(5, range(3)), "reads go on"
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(3))
        assert await calls.add(5, [4]) == [OK]


async def test_a_full_disk_refuses_and_recovers() -> None:
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.add(5, range(3)) == [OK] * 3
        disk.capacity = disk.used() + 4096
        statuses = [await calls.add(5, [e], payload=bytes(100_000)) for e in range(3, 20)]
        assert [IO_ERROR] in statuses
        assert statuses[-1] == [READ_ONLY]
        taken = statuses.index([IO_ERROR])
        assert await calls.has(5, range(3, 3 + taken), payload=bytes(100_000)), "reads go on"
        disk.capacity = 1 << 40
        calls.bookie.gate.drop_reason("disk")
        assert await calls.add(5, range(30, 40)) == [OK] * 10
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(30, 40))
        assert await calls.has(5, range(3, 3 + taken), payload=bytes(100_000))


async def test_a_checkpoint_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.01)
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        await calls.add(5, range(10))
        mark = Path(config.ledger_dirs[0]) / CURRENT / "lastMark"
        disk.error_chance = 1.0
        with pytest.raises(OSError, match="error"):
            await calls.bookie.flush()
        disk.error_chance = 0.0
        assert "storage" in calls.bookie.gate.reasons
        assert not disk.door(lambda: True).exists(mark), "the mark waits for the data"
        assert await calls.has(5, range(10)), "what is not flushed is read from memory"
        await flushed(calls)
        assert not calls.bookie.read_only
        assert decode_mark(disk.door(lambda: True).read(mark), source="mark") == calls.bookie.journals[0].mark
        assert await calls.has(5, range(10))


async def test_rows_of_a_flush_that_failed_never_point_to_nothing() -> None:
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
    for _ in range(2):  # once with what the journal tells, once with the index alone
        async with running(config, world_on(disk.door(lambda: True)), factory) as calls:
            assert await calls.has(5, range(3))
            ((status, body),) = await calls.read(5, 3)
            assert (status, body) in ((NO_ENTRY, None), (OK, entry(5, 3)))


async def test_logs_of_flushes_that_failed_go_when_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_the_end_of_a_ledger_is_known_while_its_log_is_taken_back() -> None:
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


async def flushed(calls: Calls) -> None:
    """Flushes, whatever a try that was under way may say."""
    while True:
        try:
            await calls.bookie.flush()
        except OSError:
            continue
        return


async def test_a_full_disk_is_not_filled_by_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.001)
    disk = sim_disk()
    config = config_in(HERE, log_size_limit=50_000)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        await calls.add(5, range(10), payload=bytes(20_000))
        await calls.bookie.flush()
        await calls.add(5, range(10, 30), payload=bytes(20_000))
        used = disk.used()
        disk.capacity = used + 100_000
        for _ in range(5):
            with pytest.raises(OSError, match="space"):
                await calls.bookie.flush()
            assert disk.used() <= used + 50_000
        assert await calls.has(5, range(30), payload=bytes(20_000))
        disk.capacity = 1 << 40
        await flushed(calls)
        assert await calls.has(5, range(30), payload=bytes(20_000))
        assert await calls.add(5, [30]) == [OK]


async def test_a_start_on_a_full_disk_serves_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkdaemon.bookie.checkpoint.RETRY_S", 0.01)
    disk = sim_disk()
    config = config_in(HERE)
    async with running(config, world_on(disk.door(lambda: True)), crash=True) as calls:
        await calls.add(5, range(30), payload=bytes(20_000))
    disk.capacity = disk.used()
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert "storage" in calls.bookie.gate.reasons
        assert await calls.has(5, range(30), payload=bytes(20_000))
        assert await calls.add(5, [30]) == [READ_ONLY]
        disk.capacity = 1 << 40
        await flushed(calls)
        assert not calls.bookie.read_only
        assert await calls.add(5, [30]) == [OK]
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        assert await calls.has(5, range(30), payload=bytes(20_000))


async def test_pressure_pauses_then_refuses() -> None:
    disk = sim_disk()
    config = replace(config_in(HERE), write_cache_mb=1)
    async with running(config, world_on(disk.door(lambda: True))) as calls:
        bookie = calls.bookie
        heard: list[bool] = []
        bookie.gate.on_throttle = heard.append
        answers: list[int] = []
        adds = [(5, e, KEY, entry(5, e, bytes(50_000)), 0, None) for e in range(40)]
        for add in adds:  # no turn of the loop in between: nothing can be flushed
            answers += [status for status, _ in bookie.add_batch([add], lambda *_: None)]
        assert bookie.throttled
        assert heard == [True]
        assert set(answers) == {TOO_MANY}, "beyond the room for what was under way"
        while bookie.throttled:
            await bookie.flush()
        assert heard == [True, False]
        taken = len(adds) - len(answers)
        assert await calls.has(5, range(taken), payload=bytes(50_000))
        assert await calls.add(5, [taken]) == [OK]


async def test_read_only_has_its_reasons(world: World) -> None:
    async with running(replace(config_in(HERE), force_read_only=True), world) as calls:
        assert calls.bookie.gate.reasons.keys() == {"configuration"}
        assert await calls.add(5, [0]) == [READ_ONLY]
        assert await calls.write_lac(5, encode_lac(5, 1, DIGEST)) == READ_ONLY
        gate = calls.bookie.gate
        gate.drop_reason("configuration")
        gate.add_reason("disk", "full")
        assert await calls.add(5, [0], flags=HIGH_PRIORITY) == [READ_ONLY]
        gate.takes_high_priority = True
        assert await calls.add(5, [0], flags=HIGH_PRIORITY) == [OK]
        assert await calls.add(5, [1]) == [READ_ONLY]
        gate.add_reason("journal", "broken")
        assert await calls.add(5, [2], flags=HIGH_PRIORITY) == [READ_ONLY]


async def test_several_directories(tmp_path: Path) -> None:
    config = config_in(
        tmp_path,
        journal_directories=tuple(str(tmp_path / f"j{n}") for n in range(2)),
        ledger_dirs=tuple(str(tmp_path / f"l{n}") for n in range(3)),
        index_directories=tuple(str(tmp_path / f"i{n}") for n in range(3)),
    )
    world = real_world(1)
    adds = [(ledger, e, KEY, entry(ledger, e), 0, None) for e in range(5) for ledger in range(10)]
    async with running(config, world, rocks_index(config)) as calls:
        assert await calls.add_raw(adds) == [OK] * 50
        forced: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        calls.bookie.force(forced.set_result)
        assert await forced == OK
        await calls.bookie.flush()
        assert await calls.has(4, range(5))
        marks = sorted(p.name for p in (tmp_path / "l1/current").iterdir())
        assert marks == ["0.log", "bkctl.index", "lastId", "lastMark.0", "lastMark.1"]
    async with running(config, world, rocks_index(config)) as calls:
        for ledger_id in range(10):
            assert await calls.has(ledger_id, range(5))
            assert await calls.fence(ledger_id) == OK


async def test_rows_in_the_wrong_directory_are_not_believed() -> None:
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
