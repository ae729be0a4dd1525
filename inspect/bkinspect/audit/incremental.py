"""Which files were read before: an entry log that was verified once is not read again unless it changed.

Each scan leaves `_inventory.json` beside its Parquet files: which files it holds, with a fingerprint of each. A run
takes from earlier scans what still fits, newest first, and reads the rest. A scan of a run that was killed afterwards
counts as well, for the inventory is written last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bkctl.errors import BkctlError
from bkinspect.audit.sources.directories import ScanFile
from bkinspect.audit.storage import RUN_FILE, Storage

INVENTORY: Final = "_inventory.json"
"""The underscore keeps it out of Spark's sight."""
FORMAT: Final = 1
"""Raised when a scan means something else than before: earlier ones are not used then."""
INVENTORY_SIZE_MAX: Final = 1 << 30
"""Bytes of an inventory; a larger one is not read, and its files are read again."""
SCANS_MAX: Final = 64
"""Earlier scans that are looked at."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is to be read, and what stands in earlier scans: folder → its files that count."""

    fresh: list[ScanFile]
    kept: dict[Storage, list[str]] = field(default_factory=dict)

    @property
    def kept_files(self) -> int:
        """Files that are not read again."""
        return sum(map(len, self.kept.values()))


def split(files: Sequence[ScanFile], scans: Iterable[Storage], digests: str) -> Reading:
    """Divides files into those to read and those that an earlier scan holds as they are now.

    Args:
        scans: folders of earlier scans, the best first.
        digests: what the reader was given beside the files; a scan with other digests is not used.
    """
    missing = {file.fingerprint: file for file in files}
    kept: dict[Storage, list[str]] = {}
    for folder in list(scans)[:SCANS_MAX]:
        known = _inventory(folder)
        if known is None or known["digests"] != digests or known["format"] != FORMAT:
            continue
        for fingerprint in known["files"]:
            file = missing.pop(fingerprint, None)
            if file is not None:
                kept.setdefault(folder, []).append(file.file)
    return Reading(list(missing.values()), kept)


def without(reading: Reading, files: Iterable[ScanFile], stale: Mapping[Storage, Collection[str]]) -> Reading:
    """The reading with some files of earlier scans read again. stale: scan → their names."""
    again = {name for names in stale.values() for name in names}
    kept = {scan: [name for name in names if name not in again] for scan, names in reading.kept.items()}
    fresh = reading.fresh + [file for file in files if file.file in again]
    return Reading(fresh, {scan: names for scan, names in kept.items() if names})


def earlier_scans(run: Storage) -> list[Storage]:
    """The scans below a run's folder and below its sisters', newest first."""
    found: dict[Storage, int] = {}
    for root in (run, *sister_runs(run)):
        for item in root.list(f"facts-*/scan*/{INVENTORY}"):
            found[root / item.name.rpartition("/")[0]] = item.modified_ms
    return sorted(found, key=lambda scan: (found[scan], scan.parent and scan.parent.name), reverse=True)


def sister_runs(run: Storage) -> list[Storage]:
    """The complete runs beside a run, the ones that this user may list."""
    beside = run.parent
    if beside is None:
        return []
    try:
        names = [item.name.rpartition("/")[0] for item in beside.list(f"*/{RUN_FILE}")]
    except (OSError, BkctlError):  # this user may not list it
        return []
    return [beside / name for name in names if name != run.name]


def write_inventory(folder: Storage, files: Iterable[ScanFile], digests: str) -> None:
    """Says what a scan holds; called when it is whole."""
    known = {"format": FORMAT, "digests": digests, "files": [file.fingerprint for file in files]}
    folder.write(INVENTORY, json.dumps(known).encode())


def _inventory(folder: Storage) -> dict[str, Any] | None:
    try:
        known = json.loads(folder.read(INVENTORY, INVENTORY_SIZE_MAX))
    except (OSError, ValueError, BkctlError):
        return None
    return known if isinstance(known, dict) and {"format", "digests", "files"} <= known.keys() else None
