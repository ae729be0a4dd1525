"""The bookie without sockets: what it accepts, refuses, remembers across restarts, and never says too early."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from bkdaemon.bookie.bookie import RECOVERY_ADD
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import IndexFactory, rocks_index
from bkinspect.data_dir import check_small_files, verify_journals
from bkinspect.digests import DigestBook
from bkinspect.entry_log import scan, verify_all
from bkinspect.finding import Finding, OnError, Severity
from bkinspect.ledger_index import entries, find_indexes, ledgers
from bkinspect.source import directories, entry_logs, journals

from bkctl.codec.entry import encode_lac
from bkctl.world import World, real_world
from tests.unit.daemon.bookie.world import (
    DIGEST,
    FENCED,
    HERE,
    KEY,
    NO_ENTRY,
    NO_LEDGER,
    OK,
    OTHER_KEY,
    UNAUTHORIZED,
    config_in,
    entry,
    running,
)


async def test_entries_fences_and_lacs_survive_a_restart(place: tuple[BookieConfig, World, IndexFactory]) -> None:
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


async def test_fences(world: World) -> None:
    async with running(config_in(HERE), world) as calls:
        await calls.add(5, [0])
        assert await asyncio.gather(*(calls.fence(5) for _ in range(3))) == [OK] * 3
        assert await calls.fence(5) == OK
        assert await calls.add(5, [1]) == [FENCED]
        assert await calls.fence(9) == OK
        assert await calls.read(9, 0) == [(NO_ENTRY, None)], "known by its fence, and empty"
        calls.bookie.admission.add_reason("manual", "a test")
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
        assert await calls.add(5, [6]) == [FENCED], "its old writer stays fenced"
        assert await calls.fence(5) == NO_LEDGER
        assert await calls.add(7, [0]) == [OK], "but an unfenced one may"
    async with running(*place) as calls:
        assert not calls.bookie.knows(5)
        assert await calls.has(6, range(5))
        assert [status for status, _ in await calls.read(7, 0, 1)] == [OK, NO_ENTRY]


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


def serious(folder: Path) -> list[Finding]:
    """The findings of an inspection of a bookie's directories, except information."""
    book = DigestBook()
    names, folders = [str(folder)], directories([folder])
    found = [
        *verify_all(entry_logs(names), book),
        *verify_journals(journals(names), folders, book),
        *check_small_files(folders),
    ]
    return [finding for finding in found if finding.severity is not Severity.INFO]


def logged(folder: Path) -> set[tuple[int, int, int, int]]:
    """(ledger, entry, log, offset) of every frame with a sound digest."""
    return {
        (row.ledger_id, row.entry_id, log.id or 0, row.offset)
        for log in entry_logs([str(folder)])
        for row in scan(log, DigestBook(), on_error=OnError.STOP, report=pytest.fail)
        if row.digest_ok
    }


def indexed(folder: Path) -> set[tuple[int, int, int, int]]:
    """(ledger, entry, log, offset) of every row of the index."""
    return {
        (row.ledger_id, row.entry_id, row.log_id, row.offset)
        for index in find_indexes(folder)
        for ledger in ledgers(index)
        for row in entries(index, ledger.ledger_id)
    }


async def test_files_of_a_bookie_pass_inspection_while_it_runs_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    folder, killed = tmp_path / "bookie", tmp_path / "killed"
    config = config_in(folder, log_size_limit=40_000)
    world = real_world(1)
    expected = {(ledger, e) for ledger in (5, 6) for e in range(400)}
    async with running(config, world, rocks_index(config)) as calls:
        for ledger_id in (5, 6):
            assert set(await calls.add(ledger_id, range(300), payload=b"x" * 100)) == {OK}
            await calls.bookie.flush()
        assert await calls.fence(6) == OK
        assert await calls.write_lac(5, encode_lac(5, 299, DIGEST)) == OK
        await calls.bookie.flush()
        assert indexed(folder) <= logged(folder)  # beside the running bookie
        adds = [(ledger, e, KEY, entry(ledger, e), 2, None) for ledger in (5, 6) for e in range(300, 400)]
        assert set(await calls.add_raw(adds)) == {OK}
        shutil.copytree(folder, killed)  # what a killed process leaves: the last entries in the journal alone
    check_whole(folder, expected)
    assert {log.id for log in entry_logs([str(folder)])} > {0, 1}

    assert serious(killed) == []
    assert {row[:2] for row in indexed(killed)} == {row for row in expected if row[1] < 300}
    config = config_in(killed, log_size_limit=40_000)
    async with running(config, world, rocks_index(config)) as calls:
        assert await calls.has(5, range(300, 400))
    check_whole(killed, expected)


def check_whole(folder: Path, expected: set[tuple[int, int]]) -> None:
    """Sound files, every entry indexed where it lies, and what the ledgers are known by."""
    assert serious(folder) == []
    assert indexed(folder) <= logged(folder)
    assert {row[:2] for row in indexed(folder)} == expected
    (index,) = find_indexes(folder)
    found = {ledger.ledger_id: ledger for ledger in ledgers(index)}
    assert (found[5].explicit_lac, found[5].fenced, found[6].fenced) == (299, False, True)
    assert found[5].master_key == KEY
