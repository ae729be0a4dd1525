"""Determines which files a run must read: a file that an earlier scan holds is not read again unless it changed.

Each scan has a file `_inventory.pq` beside its Parquet files, with a fingerprint of each file that it holds. A run
uses the files of earlier scans that are unchanged, newest scan first, and reads the others. A scan of a run that was
killed later is used too, since the inventory is written after all rows of the scan.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError
from bkinspect.audit.sources.file_list import FileList
from bkinspect.audit.storage import RUN_FILE, Storage

if TYPE_CHECKING:
    import pyarrow as pa

INVENTORY: Final = "_inventory.pq"
"""A Parquet file whose name neither Spark nor the pattern *.parquet takes for rows of the scan."""
FORMAT: Final = 2
"""The format of scans, increased when the meaning of their rows changes: scans of other formats are not used."""
INVENTORY_ROWS_MAX: Final = 10_000_000
"""Files of an inventory; a larger inventory is ignored, and its files are read again."""
_FORMAT, _DIGESTS = "bkctl.format", "bkctl.digests"
SCANS_MAX: Final = 64
"""Earlier scans whose inventories are read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The files of a run. fresh: files to read; kept: scan → files of it that are used."""

    fresh: FileList
    kept: dict[Storage, FileList] = field(default_factory=dict)

    @property
    def kept_files(self) -> int:
        """The number of files that are not read again."""
        return sum(map(len, self.kept.values()))

    @property
    def scans(self) -> dict[Storage, list[str] | None]:
        """The earlier scans, each with the paths of the files that are used."""
        return {scan: files.names.to_pylist() for scan, files in self.kept.items()}


def split(files: FileList, scans: Iterable[Storage], digests: str) -> Reading:
    """Divides files into those to read and those that an earlier scan holds unchanged.

    Args:
        scans: folders of earlier scans, the preferred first.
        digests: identifies the reader's options; a scan with other options is not used.
    """
    import pyarrow.compute as compute

    kept: dict[Storage, FileList] = {}
    for folder in list(scans)[:SCANS_MAX]:
        known = _inventory(folder, digests) if len(files) else None
        if known is None:
            continue
        mask = compute.is_in(files.fingerprints, value_set=known)
        own, files = files.where(mask), files.where(compute.invert(mask))
        if len(own):
            kept[folder] = own
    return Reading(files, kept)


def without(reading: Reading, stale: Mapping[Storage, Collection[str]]) -> Reading:
    """Returns the reading with some files of earlier scans moved to those to read.

    Args:
        stale: scan → names of the files to read again.
    """
    fresh = reading.fresh
    for scan, names in stale.items():
        fresh = fresh.with_others(reading.kept[scan].named(names))
    kept = {scan: files.named(stale.get(scan, ()), inverted=True) for scan, files in reading.kept.items()}
    return Reading(fresh, {scan: files for scan, files in kept.items() if len(files)})


def earlier_scans(run: Storage) -> list[Storage]:
    """Returns the scans below a run's folder and below those of sister_runs, newest first."""
    found: dict[Storage, int] = {}
    for root in (run, *sister_runs(run)):
        for item in root.list(f"facts-*/scan*/{INVENTORY}"):
            found[root / item.name.rpartition("/")[0]] = item.modified_ms
    return sorted(found, key=lambda scan: (found[scan], scan.parent and scan.parent.name), reverse=True)


def sister_runs(run: Storage) -> list[Storage]:
    """Returns the complete runs beside a run; none if this user may not list their folder."""
    beside = run.parent
    if beside is None:
        return []
    try:
        names = [item.name.rpartition("/")[0] for item in beside.list(f"*/{RUN_FILE}")]
    except (OSError, BkctlError):  # this user may not list it
        return []
    return [beside / name for name in names if name != run.name]


def write_inventory(folder: Storage, files: FileList, digests: str) -> None:
    """Writes the inventory of a scan, after all rows of the scan are written."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    about = {_FORMAT: str(FORMAT), _DIGESTS: digests}
    rows = pa.table({"fingerprint": files.fingerprints}).replace_schema_metadata(about)
    buffer = io.BytesIO()
    parquet.write_table(rows, buffer, compression="zstd")
    folder.write(INVENTORY, buffer.getvalue())


def _inventory(folder: Storage, digests: str) -> pa.Array | None:
    """Returns the fingerprints of a scan with these digests; None for another scan, or if it cannot be read."""
    import pyarrow.parquet as parquet

    try:
        with folder.open_input(INVENTORY) as file:
            rows = parquet.ParquetFile(file)
            about = rows.schema_arrow.metadata or {}
            expected = {_FORMAT.encode(): str(FORMAT).encode(), _DIGESTS.encode(): digests.encode()}
            if not expected.items() <= about.items() or rows.metadata.num_rows > INVENTORY_ROWS_MAX:
                return None
            return rows.read(["fingerprint"])["fingerprint"].combine_chunks()
    except (OSError, ValueError, KeyError, BkctlError):  # pyarrow raises OSError and ValueError
        return None
