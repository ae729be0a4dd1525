"""Disk usage: a bookie becomes read-only before a disk is full, and writable again when space is available.

    a ledger or index directory     used > diskUsageThreshold                      full
    one of them is full             readOnlyModeOnAnyDiskFullEnabled               read-only while one is
    all of them are full                                                           read-only until the usage of all
                                                                                   together is < diskUsageLwmThreshold
    a journal directory             no space for two more preallocated pieces      read-only
    read-only, but free space       > minUsableSizeForHighPriorityWrites           adds of high priority are accepted

Checked every diskCheckInterval. Reads are always served. Source: LedgerDirsMonitor.java, DiskChecker.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.admission import Admission
    from bkdaemon.bookie.config import BookieConfig

REASON: Final = "disk"
JOURNAL_STEPS_FREE: Final = 2
MIB: Final = 1 << 20
Usage = tuple[int, int]
"""(total, free) bytes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequence of the disk usage: why the bookie is read-only, and whether it accepts adds of high priority."""

    reason: str | None
    takes_high_priority: bool


def judge(
    config: BookieConfig, ledgers: Mapping[str, Usage], journals: Mapping[str, Usage], *, read_only: bool
) -> Verdict:
    """Decides from the usage of each directory, and from whether the bookie is read-only because of it now."""
    full = {path: used(usage) for path, usage in ledgers.items() if used(usage) > config.disk_usage_threshold}
    high_priority = any(free > config.high_priority_bytes for _, free in ledgers.values())
    journal_min = JOURNAL_STEPS_FREE * config.journal_prealloc_size_mb * MIB
    no_room = [path for path, (_, free) in journals.items() if free < journal_min]
    if no_room:
        return Verdict(f"journal directory {no_room[0]} has less than {journal_min} bytes free", high_priority)
    limit = config.disk_usage_threshold
    if full and (config.read_only_on_any_full or len(full) == len(ledgers)):
        path, share = max(full.items(), key=lambda item: item[1])
        return Verdict(f"{path} is {share:.1%} full, the limit is {limit:.1%}", high_priority)
    together = used((sum(total for total, _ in ledgers.values()), sum(free for _, free in ledgers.values())))
    if read_only and together >= config.low_mark and together > 0 and config.low_mark < limit:
        return Verdict(f"the disks are {together:.1%} full; writable again below {config.low_mark:.1%}", high_priority)
    return Verdict(None, high_priority)


def used(usage: Usage) -> float:
    """Returns the used share; 0 if the file system does not report its size."""
    total, free = usage
    return 1 - free / total if total else 0.0


class DiskMonitor:
    """Checks the directories of a bookie and sets the reason of its admission."""

    def __init__(self, config: BookieConfig, disk: Disk, admission: Admission) -> None:
        self._config = config
        self._disk = disk
        self._admission = admission
        self._timer: asyncio.TimerHandle | None = None
        self.usage: dict[str, Usage] = {}

    def start(self) -> None:
        """Checks now, and then every diskCheckInterval."""
        self.check()
        interval_s = self._config.disk_check_interval_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(interval_s, self.start)

    def close(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Checks once."""
        config = self._config
        try:
            ledgers = {d: self._disk.usage(Path(d)) for d in (*config.ledger_dirs, *config.index_dirs)}
            journals = {d: self._disk.usage(Path(d)) for d in config.journal_dirs}
        except OSError as e:
            self._admission.add_reason(REASON, f"cannot read the disk usage of a directory: {e}")
            return
        self.usage = ledgers | journals
        verdict = judge(config, ledgers, journals, read_only=REASON in self._admission.reasons)
        self._admission.takes_high_priority = verdict.takes_high_priority
        if verdict.reason is None:
            self._admission.drop_reason(REASON)
        else:
            self._admission.add_reason(REASON, verdict.reason)
