"""Disk usage: the thresholds as a table, and a bookie that becomes read-only and writable again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie.admission import Admission
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.disks import DiskMonitor, Usage, judge

from tests.unit.daemon.bookie.world import sim_disk

GB = 1 << 30
ANY = BookieConfig(disk_usage_threshold=0.95, disk_usage_low_mark=0.90)
ALL = replace(ANY, read_only_on_any_full=False)


def usage(*percents: float) -> dict[str, Usage]:
    return {f"l{n}": (100 * GB, int((100 - p) * GB)) for n, p in enumerate(percents)}


FREE_JOURNAL = {"j": (100 * GB, 50 * GB)}


@pytest.mark.parametrize(
    ("config", "percents", "read_only", "turns"),
    [
        (ANY, (50, 50), False, False),
        (ANY, (94.9, 50), False, False),
        (ANY, (95.1, 50), False, True),
        (ANY, (94, 50), True, False),
        (ALL, (95.1, 50), False, False),
        (ALL, (95.1, 96), False, True),
        (ALL, (94, 93), True, True),
        (ALL, (94, 80), True, False),
        (ANY, (92,), True, True),
        (ANY, (89,), True, False),
    ],
)
def test_thresholds(config: BookieConfig, percents: tuple[float, ...], read_only: bool, turns: bool) -> None:
    verdict = judge(config, usage(*percents), FREE_JOURNAL, read_only=read_only)
    assert (verdict.reason is not None) is turns


def test_a_journal_directory_without_space_makes_the_bookie_read_only() -> None:
    verdict = judge(ANY, usage(10), {"j": (100 * GB, 1 << 20)}, read_only=False)
    assert verdict.reason is not None
    assert "journal directory j" in verdict.reason


def test_high_priority_needs_some_bytes() -> None:
    assert judge(ANY, usage(97), FREE_JOURNAL, read_only=False).takes_high_priority
    small = replace(ANY, min_usable_for_high_priority=50 * GB)
    assert not judge(small, usage(97), FREE_JOURNAL, read_only=False).takes_high_priority


def test_a_file_system_of_unknown_size_is_not_full() -> None:
    assert judge(ANY, {"l": (0, 0)}, FREE_JOURNAL, read_only=False).reason is None


async def test_the_mode_follows_the_disk_usage() -> None:
    disk = sim_disk()
    door = disk.door(lambda: True)
    door.make_dirs(Path("/l"))
    config = BookieConfig(ledger_dirs=("/l",), journal_directory="/l", disk_check_interval_ms=1)
    admission = Admission(1.0)
    admission.drop_reason("starting")
    heard: list[bool] = []
    changed = asyncio.Event()

    def changes(read_only: bool) -> None:
        heard.append(read_only)
        changed.set()

    admission.on_read_only = changes
    monitor = DiskMonitor(config, door, admission)
    disk.capacity = 1 << 30
    file = door.open(Path("/l/a"), create=True, write=True)
    monitor.start()
    try:
        assert admission.status is None
        file.allocate(0, (1 << 30) - 100)
        await changed.wait()
        assert heard == [True]
        assert admission.reasons.keys() == {"disk"}
        changed.clear()
        file.truncate(0)
        await changed.wait()
        assert heard == [True, False]
    finally:
        monitor.close()
