"""Requests to a running job: change the rate, change the parallelism, cancel.

    <directory>/bookie-drain-1a2b….json       what the job remembers, written by the job alone (job_state.py)
    <directory>/bookie-drain-1a2b….lock       held while a process works on it
    <directory>/bookie-drain-1a2b….control    what is asked of it, written by others; read every LOOK_S

A request applies to the current run: a job deletes requests when it takes its lock, and when it releases it. The
process that removes a lock file holds it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from bkctl.errors import BkctlError, Refused
from bkctl.world import Disk
from bkrecovery.job_state import CONTROL_SUFFIX, LOCK_SUFFIX, RATE_FILE, SUFFIX, JobState

VERSION: Final = 1
LOOK_S: Final = 0.5
"""Between two polls of a running job for requests."""


@dataclass(frozen=True, slots=True)
class JobControl:
    """A request: None leaves a setting unchanged. rate <= 0: no limit; its unit is the job's (bytes, ledgers)."""

    rate: float | None = None
    parallel: int | None = None
    cancelled_by: str | None = None

    def encode(self) -> bytes:
        """The file."""
        return (json.dumps({"version": VERSION, **asdict(self)}) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, source: str) -> JobControl:
        """The request in a file.

        Raises:
            Refused: it is not valid.
        """
        try:
            record = json.loads(data)
            if record.pop("version") != VERSION or set(record) != {f.name for f in fields(cls)}:
                raise ValueError("another version, or other fields")
            found = cls(**record)
            if not _sound(found):
                raise ValueError("values of another kind")
            return found
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise Refused(f"{source} is not a valid request to a job: {e}", hint="remove the file") from None


def _sound(control: JobControl) -> bool:
    rate, parallel = control.rate, control.parallel
    return (rate is None or isinstance(rate, int | float)) and (
        parallel is None or (isinstance(parallel, int) and parallel > 0)
    )


class ControlFile:
    """The requests to one job."""

    def __init__(self, disk: Disk, state_path: Path) -> None:
        self.path = state_path.with_suffix(CONTROL_SUFFIX)
        self._disk = disk

    def read(self) -> JobControl:
        """The current request; empty without a file.

        Raises:
            Refused: the file is damaged.
        """
        if not self._disk.exists(self.path):
            return JobControl()
        return JobControl.decode(self._disk.read(self.path), str(self.path))

    def ask(self, **changes: Any) -> JobControl:
        """Adds to the request; earlier settings stay."""
        control = replace(self.read(), **changes)
        self._disk.replace(self.path, control.encode())
        return control

    async def obey(self, apply: Callable[[JobControl], None], unreadable: Callable[[str], None]) -> str:
        """Handles requests until one cancels the job; returns the requester.

        Args:
            apply: applies a request; called once for each change.
            unreadable: called once for a damaged file, which is ignored.
        """
        known, told = JobControl(), False
        while True:
            try:
                asked = self.read()
            except (BkctlError, OSError) as e:
                if not told:
                    unreadable(str(e))
                asked, told = known, True
            if asked.cancelled_by is not None:
                return asked.cancelled_by
            if asked != known:
                known = asked
                apply(asked)
            await asyncio.sleep(LOOK_S)


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A stored job. error: why its file cannot be read; then without a state."""

    path: Path
    state: JobState | None
    running: bool
    error: str | None = None

    @property
    def name(self) -> str:
        """Its name: that of the file."""
        return self.path.name.removesuffix(SUFFIX)


def known_jobs(disk: Disk, directory: Path) -> Iterator[KnownJob]:
    """The jobs in a directory, by name."""
    if disk.exists(directory):
        for name in disk.names(directory):
            if name.endswith(SUFFIX) and name != RATE_FILE:
                job = known_job(disk, directory / name)
                if job is not None:
                    yield job


def known_job(disk: Disk, path: Path) -> KnownJob | None:
    """The job whose state is in this file; None if it has ended by now."""
    try:
        state, error = JobState.decode(disk.read(path), str(path)), None
    except FileNotFoundError:
        return None
    except (Refused, OSError) as e:
        state, error = None, str(e)
    return KnownJob(path, state, is_running(disk, path), error)


def is_running(disk: Disk, path: Path) -> bool:
    """True if a process runs the job of this file now."""
    lock = path.with_suffix(LOCK_SUFFIX)
    if not disk.exists(lock):
        return False
    release = disk.lock(lock)
    if release is None:
        return True
    release()
    return False
