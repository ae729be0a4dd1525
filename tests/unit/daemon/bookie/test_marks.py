"""The marks of the journals in the ledger directories: the greatest valid one wins, one directory suffices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.marks import read_marks, store_marks, trim_journals

from bkctl.codec.data_dir import CURRENT, NO_MARK, LogMark, encode_mark
from bkctl.codec.journal import journal_name
from bkctl.world import Disk
from tests.sim.disk import SimDisk
from tests.unit.daemon.bookie.world import config_in, sim_disk

CONFIG = config_in(Path("/b"), ledger_dirs=("/l0", "/l1"))
TWO_JOURNALS = replace(CONFIG, journal_directories=("/j0", "/j1"))


@pytest.fixture
def simulated() -> SimDisk:
    return sim_disk()


@pytest.fixture
def disk(simulated: SimDisk) -> Disk:
    door = simulated.door(lambda: True)
    for directory in ("/l0", "/l1", "/j0", "/j1"):
        door.make_dirs(Path(directory) / CURRENT)
    return door


def path(directory: str, name: str = "lastMark") -> Path:
    return Path(directory) / CURRENT / name


@pytest.mark.parametrize(("config", "marks"), [(CONFIG, ((7, 512),)), (TWO_JOURNALS, ((7, 512), (9, 1024)))])
def test_stored_marks_are_read_again(disk: Disk, config: BookieConfig, marks: tuple[tuple[int, int], ...]) -> None:
    assert read_marks(disk, config) == [NO_MARK] * len(marks)
    store_marks(disk, config, tuple(LogMark(*mark) for mark in marks))
    assert read_marks(disk, config) == [LogMark(*mark) for mark in marks]


def test_the_greatest_mark_of_all_directories_is_used(disk: Disk) -> None:
    disk.replace(path("/l0"), encode_mark(LogMark(7, 4096)))
    disk.replace(path("/l1"), encode_mark(LogMark(8, 512)))
    assert read_marks(disk, CONFIG) == [LogMark(8, 512)]


def test_a_truncated_mark_is_logged_and_ignored(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.replace(path("/l0"), encode_mark(LogMark(9, 512))[:7])
    disk.replace(path("/l1"), encode_mark(LogMark(8, 512)))
    assert read_marks(disk, CONFIG) == [LogMark(8, 512)]
    assert str(path("/l0")) in caplog.text


def test_marks_that_no_directory_takes_are_an_error(simulated: SimDisk, disk: Disk) -> None:
    store_marks(disk, CONFIG, (LogMark(7, 512),))
    simulated.error_chance = 1.0
    with pytest.raises(OSError, match="error"):
        store_marks(disk, CONFIG, (LogMark(8, 512),))
    simulated.error_chance = 0.0
    assert read_marks(disk, CONFIG) == [LogMark(7, 512)]


def test_journals_before_the_mark_are_removed_but_for_the_backups(disk: Disk) -> None:
    config = replace(TWO_JOURNALS, journal_max_backups=1)
    for journal_id in (3, 4, 5, 6):
        for directory in config.journal_dirs:
            disk.replace(path(directory, journal_name(journal_id)), b"")
    trim_journals(disk, config, (LogMark(6, 512), LogMark(4, 512)))
    left = [sorted(disk.names(Path(directory) / CURRENT)) for directory in config.journal_dirs]
    assert left == [["5.txn", "6.txn"], ["3.txn", "4.txn", "5.txn", "6.txn"]]
