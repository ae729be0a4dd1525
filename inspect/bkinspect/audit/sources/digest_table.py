"""Looks digest types and passwords of ledgers up in Parquet files, without loading them as a whole.

A worker keeps the first and last ledger id of each row group, and the row groups that it used last, so its memory does
not grow with the number of ledgers. An entry log has ledgers that were written at the same time, whose ids are close,
so few row groups are needed for a log. A run writes the Parquet in the order of ledger ids, with small row groups;
files in any order can be read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from bkctl.codec.checksum import Digest, digest_for
from bkctl.model.ledger import DigestType

DIGEST_WORDS: Final = {
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "CRC32C": DigestType.CRC32C,
    "DUMMY": DigestType.DUMMY,
}
COLUMNS: Final = ("ledger_id", "digest_type", "password")
GROUPS_MAX: Final = 64
"""Row groups that a worker keeps in memory."""
GROUP_SIZE: Final = 1 << 20
"""Bytes of a row group that a run writes."""
_ID_MIN, _ID_MAX = -(1 << 63), (1 << 63) - 1

Column = np.ndarray[Any, Any]


@lru_cache(4096)
def digest_of(word: str, password: bytes) -> Digest:
    """Returns the digest for a password and a type by its name in metadata."""
    return digest_for(DIGEST_WORDS[word], password)


class DigestTable:
    """Digests by ledger, from Parquet files with COLUMNS; empty without files.

    Args:
        files: local paths.
    """

    def __init__(self, files: Sequence[str] = ()) -> None:
        import pyarrow.parquet as parquet

        self._files = [parquet.ParquetFile(file) for file in files]
        self.reads = 0
        """The number of row groups that were read, each repetition included."""
        spans = []
        for number, file in enumerate(self._files):
            column = file.schema_arrow.names.index("ledger_id") if file.num_row_groups else 0
            for group in range(file.num_row_groups):
                statistics = file.metadata.row_group(group).column(column).statistics
                known = statistics is not None and statistics.has_min_max
                first, last = (statistics.min, statistics.max) if known else (_ID_MIN, _ID_MAX)
                spans.append((first, last, number, group))
        spans.sort()
        self._places = [span[2:] for span in spans]
        self._firsts = np.array([span[0] for span in spans], dtype=np.int64)
        self._lasts = np.maximum.accumulate(np.array([span[1] for span in spans], dtype=np.int64))
        self._groups: OrderedDict[int, tuple[Column, Any, Any]] = OrderedDict()

    def of(self, ledger_ids: Column) -> Mapping[int, Digest]:
        """Returns the digests of the ledgers that are in the table.

        Args:
            ledger_ids: distinct, ascending.
        """
        found: dict[int, Digest] = {}
        if not len(self._firsts):
            return found
        begins = np.searchsorted(self._lasts, ledger_ids, "left")
        ends = np.searchsorted(self._firsts, ledger_ids, "right")
        for begin, end in np.unique(np.stack([begins, ends], axis=1), axis=0).tolist():
            own = ledger_ids[(begins == begin) & (ends == end)]
            for group in range(begin, end):
                self._look_up(group, own, found)
        return found

    def _look_up(self, group: int, ledger_ids: Column, found: dict[int, Digest]) -> None:
        ids, words, passwords = self._group(group)
        at = np.searchsorted(ids, ledger_ids)
        hit = (at < len(ids)) & (ids[np.minimum(at, len(ids) - 1)] == ledger_ids)
        for ledger_id, row in zip(ledger_ids[hit].tolist(), at[hit].tolist(), strict=True):
            found[ledger_id] = digest_of(words[row].as_py(), passwords[row].as_py() or b"")

    def _group(self, group: int) -> tuple[Column, Any, Any]:
        """Returns the columns of a row group, in the order of ledger ids."""
        if group in self._groups:
            self._groups.move_to_end(group)
            return self._groups[group]
        number, index = self._places[group]
        rows = self._files[number].read_row_group(index, columns=list(COLUMNS)).sort_by("ledger_id")
        columns = [rows[name].combine_chunks() for name in COLUMNS]
        self.reads += 1
        if len(self._groups) >= GROUPS_MAX:
            self._groups.popitem(last=False)
        self._groups[group] = columns[0].to_numpy(), columns[1], columns[2]
        return self._groups[group]


class GivenDigests:
    """Digests by ledger, from a mapping, with the interface of DigestTable."""

    def __init__(self, known: Mapping[int, Digest]) -> None:
        self._known = known
        self._ids = np.array(sorted(known), dtype=np.int64)

    def of(self, ledger_ids: Column) -> Mapping[int, Digest]:
        """Returns the digests of the ledgers that are in the mapping, as DigestTable.of."""
        if not len(self._ids):
            return {}
        return {one: self._known[one] for one in ledger_ids[np.isin(ledger_ids, self._ids)].tolist()}


KnownDigests = DigestTable | GivenDigests
