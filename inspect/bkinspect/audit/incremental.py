"""Which files were read before: an entry log that was verified once is not read again unless it changed.

Each scan leaves `_inventory.json` beside its Parquet files: which files it holds, with a fingerprint of each. A run
takes from earlier scans what still fits, newest first, and reads the rest. A scan of a run that was killed afterwards
counts as well, for the inventory is written last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bkinspect.audit.sources.directories import ScanFile

INVENTORY: Final = "_inventory.json"
"""The underscore keeps it out of Spark's sight."""
FORMAT: Final = 1
"""Raised when a scan means something else than before: earlier ones are not used then."""
SCANS_MAX: Final = 64
"""Earlier scans that are looked at."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is to be read, and what stands in earlier scans: folder → its files that count."""

    fresh: list[ScanFile]
    kept: dict[Path, list[str]] = field(default_factory=dict)

    @property
    def kept_files(self) -> int:
        """Files that are not read again."""
        return sum(map(len, self.kept.values()))


def split(files: Sequence[ScanFile], scans: Iterable[Path], digests: str) -> Reading:
    """Divides files into those to read and those that an earlier scan holds as they are now.

    Args:
        scans: folders of earlier scans, the best first.
        digests: what the reader was given beside the files; a scan with other digests is not used.
    """
    missing = {file.fingerprint: file for file in files}
    kept: dict[Path, list[str]] = {}
    for folder in list(scans)[:SCANS_MAX]:
        known = _inventory(folder)
        if known is None or known["digests"] != digests or known["format"] != FORMAT:
            continue
        for fingerprint in known["files"]:
            file = missing.pop(fingerprint, None)
            if file is not None:
                kept.setdefault(folder, []).append(file.file)
    return Reading(list(missing.values()), kept)


def without(reading: Reading, files: Iterable[ScanFile], stale: Mapping[Path, Collection[str]]) -> Reading:
    """The reading with some files of earlier scans read again. stale: scan → their names."""
    again = {name for names in stale.values() for name in names}
    kept = {scan: [name for name in names if name not in again] for scan, names in reading.kept.items()}
    fresh = reading.fresh + [file for file in files if file.file in again]
    return Reading(fresh, {scan: names for scan, names in kept.items() if names})


def earlier_scans(run: Path) -> list[Path]:
    """The scans below a run's folder and below its sisters', newest first."""
    try:
        roots = [run, *run.parent.iterdir()]
    except OSError:  # not there yet, or not for us to list
        roots = [run]
    found = {
        inventory.parent
        for root in roots
        if os.path.isdir(root) and (root == run or os.path.isfile(root / "run.json"))  # False where we may not look
        for inventory in root.glob(f"facts-*/scan*/{INVENTORY}")
    }
    return sorted(found, key=lambda folder: (folder / INVENTORY).stat().st_mtime_ns, reverse=True)


def write_inventory(folder: Path, files: Iterable[ScanFile], digests: str) -> None:
    """Says what a scan holds; called when it is whole."""
    known = {"format": FORMAT, "digests": digests, "files": [file.fingerprint for file in files]}
    (folder / INVENTORY).write_text(json.dumps(known))


def _inventory(folder: Path) -> dict[str, Any] | None:
    try:
        known = json.loads((folder / INVENTORY).read_text())
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and {"format", "digests", "files"} <= known.keys() else None
