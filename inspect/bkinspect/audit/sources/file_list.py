"""Lists the files of a scan as Arrow columns and divides them among tasks.

A cluster of 1 PB has a million entry logs. As Arrow columns they need about 170 bytes each. A task is two numbers: it
reads its rows of the plan, which is a Parquet file.
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
"""Files that the driver lists; more files are listed by tasks of Spark, one bookie per task."""
GROUP_ROWS: Final = 1_000
"""Files in a row group of a plan: a task reads only the row groups with its files."""
TASKS_MAX: Final = 100_000
"""Tasks of a scan; if there are more ranges of files, each task reads several."""


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
        """Returns the list of these files."""
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
        """The paths of the files."""
        return self.rows["file"]

    @property
    def fingerprints(self) -> pa.ChunkedArray:
        """The fingerprints of the files (ScanFile.fingerprint)."""
        return self.rows["fingerprint"]

    @property
    def size_max(self) -> int:
        """Bytes of the largest file; 0 for an empty list."""
        import pyarrow.compute as compute

        return int(compute.max(self.rows["size"]).as_py() or 0)

    def where(self, mask: Any) -> FileList:
        """Returns the files for which a boolean array is true."""
        return FileList(self.rows.filter(mask))

    def named(self, names: Iterable[str], *, inverted: bool = False) -> FileList:
        """Returns the files with these paths; if inverted, all other files."""
        import pyarrow as pa
        import pyarrow.compute as compute

        mask = compute.is_in(self.names, value_set=pa.array(sorted(names), pa.string()))
        return self.where(compute.invert(mask) if inverted else mask)

    def with_others(self, others: FileList) -> FileList:
        """Returns the files of both lists."""
        import pyarrow as pa

        return FileList(pa.concat_tables([self.rows, others.rows]))

    def encode(self) -> bytes:
        """Returns the list as Parquet, for FilePlan."""
        import pyarrow.parquet as parquet

        buffer = io.BytesIO()
        parquet.write_table(self.rows, buffer, row_group_size=GROUP_ROWS, compression="zstd")
        return buffer.getvalue()


@dataclass
class FilePart(InputPartition):
    """The records of a file that start at start or after it, and before end."""

    about: ScanFile
    start: int
    end: int

    @property
    def whole(self) -> bool:
        """True for the first range of a file, whose reader also yields the rows about the file."""
        return self.start == 0


@dataclass
class PlanParts(InputPartition):
    """The ranges of a plan with numbers first..last - 1."""

    first: int
    last: int


def ranges_of(sizes: Any, divided: Any, step: int) -> Any:
    """Returns the number of ranges of `step` bytes for each file; 1 for a file that is not divided."""
    return np.where(divided, np.maximum(-(-np.maximum(sizes, 1) // step), 1), 1)


class FilePlan:
    """A plan of FileList.encode, divided into ranges of `step` bytes of entry logs; a journal is one range.

    Args:
        bookie_id: the bookie whose files are read, None for all.
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
        """Returns at most `most` partitions, with about the same number of ranges each."""
        together = max(-(-self.ranges // most), 1)
        return [PlanParts(at, min(at + together, self.ranges)) for at in range(0, self.ranges, together)]

    def parts(self, task: PlanParts) -> Iterator[FilePart]:
        """Yields the ranges of a task."""
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
    """Returns the number of names in the directories of logs and journals."""
    return sum(len(os.listdir(folder)) for one in bookies for folder in (*one.ledgers, *one.journals))


@dataclass
class BookieFiles(InputPartition):
    """The files of one bookie."""

    bookie: BookieDirs


class FilesReader(Reader):
    """Lists entry logs and journals, with one task per bookie."""

    own_options: ClassVar[frozenset[str]] = frozenset(("paths",))

    def partitions(self) -> list[InputPartition]:
        """Returns one partition per bookie."""
        return [BookieFiles(one) for one in find_bookies(map(Path, self.option("paths").splitlines()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the files of a bookie as rows of FILES."""
        assert isinstance(partition, BookieFiles)
        return batches_of(FILES, map(_row, scan_files(partition.bookie)), DRIVER_FILES_MAX)


class FilesSource(Source):
    """`bookkeeper.files`: the entry logs and journals that a run would read."""

    table: ClassVar[Table] = FILES
    reader_class: ClassVar[type[Reader]] = FilesReader
