"""What a bookie leaves on disk is sound to cold eyes: while it runs, after a stop, and after a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bkdaemon.bookie.index import rocks_index
from bkinspect.data_dir import check_small_files, verify_journals
from bkinspect.digests import DigestBook
from bkinspect.entry_log import scan, verify_all
from bkinspect.finding import Finding, OnError, Severity
from bkinspect.ledger_index import entries, find_indexes, ledgers
from bkinspect.source import directories, entry_logs, journals

from bkctl.codec.entry import encode_lac
from bkctl.world import real_world
from tests.unit.daemon.bookie.world import DIGEST, KEY, OK, config_in, entry, running


def serious(folder: Path) -> list[Finding]:
    """What inspection finds in a bookie's directories, but for what is only worth knowing."""
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


async def test_a_bookie_leaves_sound_files(tmp_path: Path) -> None:
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
