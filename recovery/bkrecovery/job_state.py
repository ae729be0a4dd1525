"""The state of a manual job between two runs: a file, replaced as a whole, that the same command finds again.

    {"version": 1, "kind": "bookie recover", "cluster": "…", "subjects": ["b1:3181"], "started_ms": …,
     "left": [7, 9], "done": 120, "failed": {"8": "why"}, "bytes_copied": …, "seconds": …, "cursor": null, "note": {}}

The file is an optimization only: the ledgers' metadata shows what is done, so a stale or lost file costs only another
scan. A lock file beside it prevents a second run of the same job on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from bkctl.errors import Conflict, Refused
from bkctl.world import Disk

VERSION: Final = 1
SAVE_EVERY_S: Final = 1.0
"""Between two writes of the file while a job runs."""
SUFFIX: Final = ".json"
LOCK_SUFFIX: Final = ".lock"
CONTROL_SUFFIX: Final = ".control"
RATE_FILE: Final = "measured-rate.json"
NAME_DIGITS: Final = 12


@dataclass(slots=True)
class JobState:
    """The progress of a job. left: the remaining ledgers, None before it has a plan; cursor: where a scan of all
    ledgers continues.

    seconds counts time spent copying, over all runs; note contains data of one kind of job.
    """

    kind: str
    cluster: str
    subjects: tuple[str, ...]
    started_ms: int
    left: list[int] | None = None
    done: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    bytes_copied: int = 0
    seconds: float = 0.0
    cursor: int | None = None
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """True if a run can be resumed from it."""
        return self.left is not None or self.cursor is not None

    def encode(self) -> bytes:
        """The file."""
        record = {"version": VERSION, **asdict(self)}
        record["failed"] = {str(ledger_id): why for ledger_id, why in self.failed.items()}
        return (json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, source: str) -> JobState:
        """The state in a file.

        Raises:
            Refused: it is not valid, or of another version.
        """
        try:
            record = json.loads(data)
            version = record.pop("version")
            if version != VERSION:
                raise _unreadable(source, f"version {version}, not {VERSION}")
            if set(record) != {f.name for f in fields(cls)}:
                raise ValueError("other fields than a job's")
            record["subjects"] = tuple(record["subjects"])
            record["failed"] = {int(ledger_id): str(why) for ledger_id, why in record["failed"].items()}
            record["left"] = None if record["left"] is None else [int(e) for e in record["left"]]
            return cls(**record)
        except (ValueError, TypeError, KeyError, AttributeError, UnicodeDecodeError) as e:
            raise _unreadable(source, str(e)) from None


def _unreadable(source: str, why: str) -> Refused:
    return Refused(
        f"{source} is not a valid job state: {why}",
        hint="--restart discards it and plans from scratch; completed work is kept",
    )


def state_path(directory: Path, kind: str, cluster: str, subjects: Sequence[str]) -> Path:
    """The path of a job's state, derived from its kind and subjects, so that the same command finds it again."""
    key = "\0".join((kind, cluster, *sorted(subjects)))
    digest = hashlib.sha256(key.encode()).hexdigest()[:NAME_DIGITS]
    return directory / f"{kind.replace(' ', '-')}-{digest}{SUFFIX}"


class JobFile:
    """The file of one job. Reading needs no lock; before the first write it is taken: `acquire`.

    Args:
        restart: discard the stored state.
    """

    def __init__(self, disk: Disk, path: Path, *, restart: bool = False) -> None:
        self.path = path
        self._lock = path.with_suffix(LOCK_SUFFIX)
        self._control = path.with_suffix(CONTROL_SUFFIX)
        self._disk = disk
        self._restart = restart
        self._release: Callable[[], None] | None = None
        self._saved_at = float("-inf")

    def acquire(self) -> None:
        """Locks the job against other runs on this machine, until `close` or the end of the process.

        Requests to an earlier run are deleted here; later ones are kept.

        Raises:
            Conflict: another run has the lock. Refused: the file cannot be written.
        """
        try:
            self._disk.make_dirs(self.path.parent)
            self._release = self._disk.lock(self._lock)
            if self._release is not None:
                self._forget_requests()
        except OSError as e:
            raise Refused(
                f"cannot write the job state {self.path}: {e.strerror or e}",
                hint="use --state FILE for another file, or BKCTL_STATE_DIR for another directory",
                path=str(self.path),
            ) from None
        if self._release is None:
            raise Conflict(
                f"another bkctl process on this machine runs the same job ({self.path})", path=str(self.path)
            )

    def close(self) -> None:
        """Releases the lock. Idempotent."""
        if self._release is not None:
            release, self._release = self._release, None
            try:
                self._forget_requests()
            finally:
                release()

    def _forget_requests(self) -> None:
        if self._disk.exists(self._control):
            self._disk.remove(self._control)

    def load(self, kind: str, cluster: str, subjects: Sequence[str], now_ms: int) -> JobState:
        """The state of the last run, or that of a new job.

        Raises:
            Refused: the file cannot be read, or is that of another job.
        """
        new = JobState(kind, cluster, tuple(sorted(subjects)), now_ms)
        if self._restart or not self._disk.exists(self.path):
            return new
        found = JobState.decode(self._disk.read(self.path), str(self.path))
        if (found.kind, found.cluster, found.subjects) != (new.kind, new.cluster, new.subjects):
            raise Refused(
                f"{self.path} belongs to another job: {found.kind} {' '.join(found.subjects)} on {found.cluster}",
                hint="give another --state file",
            )
        return found

    def save(self, state: JobState, now: float | None = None) -> None:
        """Writes the state; with a time (of any steady clock, in seconds), only if the last write is old enough."""
        if now is not None and now - self._saved_at < SAVE_EVERY_S:
            return
        self._saved_at = now if now is not None else self._saved_at
        self._disk.replace(self.path, state.encode())

    def remove(self) -> None:
        """Deletes the job's files."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
        if self._release is not None and self._disk.exists(self._lock):
            self._disk.remove(self._lock)


def measured_rate(disk: Disk, directory: Path) -> float | None:
    """Bytes per second of the last large job on this machine, or None."""
    try:
        found = json.loads(disk.read(directory / RATE_FILE))["bytes_per_s"]
        return float(found) if found > 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # Only an estimate for plans: a failure is ignored.


def keep_measured_rate(disk: Disk, directory: Path, bytes_per_s: float) -> None:
    """Stores the rate of a job."""
    disk.replace(directory / RATE_FILE, json.dumps({"version": VERSION, "bytes_per_s": round(bytes_per_s)}).encode())
