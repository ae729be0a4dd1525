"""The files of a scan as columns: what a run lists, compares with earlier scans, and divides among tasks.

A cluster of 1 PB has a million entry logs. As Arrow columns they take some 170 bytes each, and a task is two numbers:
it reads its rows of the plan, which is Parquet, itself.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from bkinspect.audit.schemas import Column, Table, arrow_schema
from bkinspect.audit.sources.base import Reader, Source, batches_of
from bkinspect.audit.sources.directories import BookieDirs, ScanFile, find_bookies, scan_files
from bkinspect.audit.sources.spark_api import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

FILES: Final = Table(
    "files",
    "One row an entry log or journal to read.",
    tuple(
        Column(name, kind, "")
        for name, kind in (
            *(("file", "string"), ("bookie_id", "string"), ("source", "string"), ("log_id", "bigint")),
            *(("suffix", "string"), ("size", "bigint"), ("modified_ns", "bigint"), ("newest", "boolean")),
            *(("mark_journal_id", "bigint"), ("mark_offset", "bigint"), ("fingerprint", "string")),
        )
    ),
)
DRIVER_FILES_MAX: Final = 10_000
"""More files are listed by Spark's tasks, a bookie each."""
GROUP_ROWS: Final = 1_000
"""Files in a row group of a plan: a task reads the row groups of its files alone."""
TASKS_MAX: Final = 100_000
"""Tasks of a scan; each takes several ranges of files where there are more ranges."""


def _row(file: ScanFile) -> tuple[object, ...]:
    mark = file.mark or (None, None)
    about = (file.file, file.bookie_id, file.source, file.log_id, file.suffix, file.size, file.modified_ns, file.newest)
    return (*about, *mark, file.fingerprint)


def _file(row: dict[str, Any]) -> ScanFile:
    journal_id, offset, _ = row.pop("mark_journal_id"), row.pop("mark_offset"), row.pop("fingerprint")
    return ScanFile(**row, mark=None if journal_id is None else (journal_id, offset))


class FileList:
    """Files to read, as an Arrow table of FILES."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @classmethod
    def of(cls, files: Iterable[ScanFile]) -> FileList:
        """A list of these files."""
        import pyarrow as pa

        batches = batches_of(FILES, map(_row, files), DRIVER_FILES_MAX)
        return cls(pa.Table.from_batches(batches, schema=arrow_schema(FILES)))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[ScanFile]:
        for batch in self.rows.to_batches(GROUP_ROWS):
            yield from map(_file, batch.to_pylist())

    @property
    def names(self) -> pa.ChunkedArray:
        """The paths."""
        return self.rows["file"]

    @property
    def fingerprints(self) -> pa.ChunkedArray:
        """ScanFile.fingerprint of each."""
        return self.rows["fingerprint"]

    @property
    def size_max(self) -> int:
        """Bytes of the largest file."""
        import pyarrow.compute as compute

        return int(compute.max(self.rows["size"]).as_py() or 0)

    def where(self, mask: Any) -> FileList:
        """The files for which a boolean array is true."""
        return FileList(self.rows.filter(mask))

    def named(self, names: Iterable[str], *, inverted: bool = False) -> FileList:
        """The files with these paths; inverted: all others."""
        import pyarrow as pa
        import pyarrow.compute as compute

        mask = compute.is_in(self.names, value_set=pa.array(sorted(names), pa.string()))
        return self.where(compute.invert(mask) if inverted else mask)

    def with_others(self, others: FileList) -> FileList:
        """These files and those."""
        import pyarrow as pa

        return FileList(pa.concat_tables([self.rows, others.rows]))

    def encode(self) -> bytes:
        """The Parquet that FilePlan reads."""
        import pyarrow.parquet as parquet

        buffer = io.BytesIO()
        parquet.write_table(self.rows, buffer, row_group_size=GROUP_ROWS, compression="zstd")
        return buffer.getvalue()


@dataclass
class FilePart(InputPartition):
    """The records of a file that start in start..end."""

    about: ScanFile
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """True for the first range of a file, which reports about the file too."""
        return self.start == 0


@dataclass
class PlanParts(InputPartition):
    """Ranges of a plan: those with numbers first..last - 1."""

    first: int
    last: int


def ranges_of(sizes: Any, divided: Any, step: int) -> Any:
    """How many ranges of `step` bytes each file has; one where it is not divided."""
    return np.where(divided, np.maximum(-(-np.maximum(sizes, 1) // step), 1), 1)


class FilePlan:
    """A plan of FileList.encode, divided into ranges of `step` bytes of entry logs; journals are read whole.

    Args:
        bookie_id: whose files are read, None for all.
    """

    def __init__(self, path: Path, step: int, bookie_id: str | None) -> None:
        import pyarrow.parquet as parquet

        self.step = step
        self._file = parquet.ParquetFile(path)
        columns = self._file.read(["size", "source", "suffix", "bookie_id"])
        sizes, sources, suffixes = (columns[name].to_numpy() for name in ("size", "source", "suffix"))
        counts = ranges_of(sizes, (sources == "entry_log") & (suffixes == ""), step)
        if bookie_id is not None:
            counts = np.where(columns["bookie_id"].to_numpy() == bookie_id, counts, 0)
        self._ends = np.cumsum(counts, dtype=np.int64)
        rows = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._group_ends = np.cumsum(np.array(rows, dtype=np.int64))

    @property
    def ranges(self) -> int:
        """The number of ranges."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def tasks(self, most: int = TASKS_MAX) -> list[PlanParts]:
        """At most so many partitions of about the same number of ranges."""
        together = max(-(-self.ranges // most), 1)
        return [PlanParts(at, min(at + together, self.ranges)) for at in range(0, self.ranges, together)]

    def parts(self, task: PlanParts) -> Iterator[FilePart]:
        """The ranges of a task."""
        first, last = np.searchsorted(self._ends, [task.first, task.last - 1], "right").tolist()
        begins = int(self._ends[first - 1]) if first else 0
        for row, file in zip(range(first, last + 1), self._files(first, last), strict=True):
            ends = int(self._ends[row])
            for number in range(max(task.first, begins), min(task.last, ends)):
                start = (number - begins) * self.step
                yield FilePart(file, start, file.size + 1 if number == ends - 1 else start + self.step)
            begins = ends

    def _files(self, first: int, last: int) -> Iterator[ScanFile]:
        begin, end = np.searchsorted(self._group_ends, [first, last], "right").tolist()
        before = int(self._group_ends[begin - 1]) if begin else 0
        for group in range(begin, end + 1):
            rows = self._file.read_row_group(group)
            own = rows.slice(max(first - before, 0), last + 1 - max(first, before))
            yield from map(_file, own.to_pylist())
            before += rows.num_rows


def count_files(bookies: Sequence[BookieDirs]) -> int:
    """The names in directories of logs and journals."""
    return sum(len(os.listdir(folder)) for one in bookies for folder in (*one.ledgers, *one.journals))


@dataclass
class BookieFiles(InputPartition):
    """The files of one bookie."""

    bookie: BookieDirs


class FilesReader(Reader):
    """Lists entry logs and journals, a bookie to a task."""

    own_options: ClassVar[frozenset[str]] = frozenset(("paths",))

    def partitions(self) -> list[InputPartition]:
        """One a bookie."""
        return [BookieFiles(one) for one in find_bookies(map(Path, self.option("paths").splitlines()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of FILES."""
        assert isinstance(partition, BookieFiles)
        return batches_of(FILES, map(_row, scan_files(partition.bookie)), DRIVER_FILES_MAX)


class FilesSource(Source):
    """`bookkeeper.files`: what a run will read."""

    table: ClassVar[Table] = FILES
    reader_class: ClassVar[type[Reader]] = FilesReader
