"""Decodes many records at once: headers, checksums and digests of a window of a log or journal as numpy columns.

The bytes of a record are read twice: for the CRC32C, which also identifies equal copies, and for its 36 first bytes.
Entries whose CRC32C does not fit, because it is broken or the digest has another type, are checked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from google_crc32c import value

from bkctl.codec.checksum import Digest
from bkctl.codec.entry import METADATA_SIZE
from bkctl.model.ledger import DigestType
from bkinspect.audit.schemas import RECORDS, Table, arrow_schema
from bkinspect.audit.sources.digest_table import GivenDigests, KnownDigests
from bkinspect.digests import DigestBook

if TYPE_CHECKING:
    import pyarrow as pa

    from bkinspect.audit.sources.base import Selection

CRC32C_BODY: Final = METADATA_SIZE + 4
UNKNOWN, BAD, GOOD = -1, 0, 1
_NUMBERS: Final = (0, 8, 16, 24)
"""Offsets in an entry of ledger id, entry id, last confirmed entry and length."""
LEDGERS_SEEN_MAX: Final = 1_000_000

Column: TypeAlias = "np.ndarray[Any, Any]"
Columns = dict[str, Column]


class Digests:
    """Checks the digests of entries: with the known digest of the ledger, else as CRC32C, else by DigestBook.

    Args:
        known: digests by ledger, as from metadata; they are queried for the ledgers of each window.
    """

    def __init__(self, known: KnownDigests | None = None) -> None:
        self._known = known or GivenDigests({})
        self._window: Mapping[int, Digest] = {}
        self._book = DigestBook()
        self._crc32c: set[int] = set()

    def sealed_with_crc32c(self, ledger_id: int) -> None:
        """Records that a ledger uses CRC32C: an entry of it whose CRC32C does not fit is broken."""
        self._crc32c.add(ledger_id)

    def settle(self, ledger_ids: Column, is_entry: Column, crc_fits: Column) -> Column:
        """Returns the indexes of the records to be checked one by one; records which ledgers use CRC32C.

        Args:
            ledger_ids, is_entry, crc_fits: a value for each record of a window.
        """
        own = is_entry & ~crc_fits
        fitting = ledger_ids[crc_fits]
        self._window = self._known.of(np.unique(ledger_ids[is_entry]))
        if self._window:
            given = np.isin(ledger_ids, np.fromiter(self._window, dtype=np.int64, count=len(self._window)))
            own |= is_entry & given
            fitting = ledger_ids[crc_fits & ~given]
        if len(fitting):
            if len(self._crc32c) > LEDGERS_SEEN_MAX:
                self._crc32c.clear()
            self._crc32c.update(np.unique(fitting).tolist())
        return np.flatnonzero(own)

    def check(self, ledger_id: int, body: bytes) -> tuple[int, int | None]:
        """Checks one entry; returns (GOOD, BAD or UNKNOWN, the offset of its payload or None if not known)."""
        known = self._window.get(ledger_id) or self._known.of(np.array([ledger_id])).get(ledger_id)
        if known is not None:
            start = METADATA_SIZE + known.size
            if known.type is DigestType.DUMMY:
                return UNKNOWN, start
            sealed = body[METADATA_SIZE:start]
            return (GOOD if known.compute(body[:METADATA_SIZE], body[start:]) == sealed else BAD), start
        if ledger_id in self._crc32c:
            fits = len(body) >= CRC32C_BODY and self._fits(body)
            return (GOOD if fits else BAD), CRC32C_BODY
        answer = self._book.check(ledger_id, body)
        return (UNKNOWN if answer is None else GOOD if answer else BAD), self._book.payload_offset(ledger_id)

    @staticmethod
    def _fits(body: bytes) -> bool:
        sealed = int.from_bytes(body[METADATA_SIZE:CRC32C_BODY], "big")
        return bool(value(body[:METADATA_SIZE] + body[CRC32C_BODY:]) == sealed)


def _at(buffer: bytes, begin: Column, place: int, big_endian: str, kind: type[Any]) -> Column:
    """Returns the numbers at `place` bytes after each begin, aligned or not; bytes after the buffer's end read as 0."""
    behind = place + np.dtype(big_endian).itemsize
    if len(begin) and int(begin[-1]) + behind > len(buffer):
        buffer = buffer.ljust(int(begin[-1]) + behind, b"\0")
    everywhere: Column = np.ndarray((max(len(buffer) - behind + 1, 0),), big_endian, buffer, place, (1,))
    return everywhere[begin].astype(kind)


def decode(buffer: bytes, starts: Sequence[int], ends: Sequence[int], digests: Digests) -> Columns:
    """Returns the columns of the records in a buffer.

    Args:
        starts: offsets of the records, after their 4-byte sizes. ends: offsets of the bytes after them.
    """
    begin = np.array(starts, dtype=np.int64)
    size = np.array(ends, dtype=np.int64) - begin
    ledger_id, entry_id, last_confirmed, length = (_at(buffer, begin, place, ">i8", np.int64) for place in _NUMBERS)
    sealed = _at(buffer, begin, METADATA_SIZE, ">u4", np.uint32)
    crcs = np.array(
        [value(buffer[a : a + 32] + buffer[a + 36 : b]) for a, b in zip(starts, ends, strict=True)], dtype=np.uint32
    )
    for i in np.flatnonzero(size < CRC32C_BODY).tolist():
        body = buffer[starts[i] : ends[i]]
        crcs[i], sealed[i] = value(body[:METADATA_SIZE]), int.from_bytes(body[METADATA_SIZE:].ljust(4, b"\0"), "big")
    is_entry = (ledger_id >= 0) & (entry_id >= 0)
    fits = (crcs == sealed) & is_entry & (size >= CRC32C_BODY)
    digest_ok = np.where(fits, GOOD, UNKNOWN).astype(np.int8)
    payload = np.where(fits, size - CRC32C_BODY, -1)
    for i in digests.settle(ledger_id, is_entry, fits).tolist():
        answer, start = digests.check(int(ledger_id[i]), buffer[starts[i] : ends[i]])
        digest_ok[i] = answer
        payload[i] = -1 if start is None else max(int(size[i]) - start, 0)
    return {
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "last_confirmed": last_confirmed,
        "length": length,
        "has_head": is_entry & (size >= METADATA_SIZE),
        "is_entry": is_entry,
        "payload_size": payload,
        "digest_ok": digest_ok,
        "content_digest": (crcs.astype(np.uint64) << np.uint64(32) | sealed).view(np.int64),
        "size": size,
    }


def chosen(columns: Columns, selection: Selection) -> Columns:
    """Returns the rows whose ledger ids are selected."""
    from bkinspect.audit.sources.base import LEDGER_ID_MAX

    ids = columns["ledger_id"]
    wanted = np.ones(len(ids), dtype=bool)
    if selection.first_ledger > 0 or selection.last_ledger < LEDGER_ID_MAX:
        wanted &= (ids >= selection.first_ledger) & (ids <= selection.last_ledger)
    if selection.ledgers is not None:
        wanted &= np.isin(ids, np.array(sorted(selection.ledgers), dtype=np.int64))
    if selection.sample is not None:
        unique, inverse = np.unique(ids, return_inverse=True)
        wanted &= np.array([selection.has(ledger) for ledger in unique.tolist()], dtype=bool)[inverse]
    return columns if wanted.all() else {name: column[wanted] for name, column in columns.items()}


def joined(parts: Sequence[Columns]) -> Columns:
    """Returns the columns of several windows, concatenated."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def record_batch(
    columns: Columns,
    constants: Mapping[str, object],
    kinds: Sequence[str],
    table: Table = RECORDS,
    wanted: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Returns decoded columns as an Arrow batch.

    Args:
        columns: as from decode; "kind" has indexes into kinds.
        constants: column → its value in every row, for columns of the table that are not in columns; others are null.
        wanted: the names of the columns of the batch, None for all of the table.
    """
    import pyarrow as pa

    count = len(columns["ledger_id"])
    schema = arrow_schema(table)
    if wanted is not None:
        schema = pa.schema([schema.field(name) for name in wanted])
    arrays = []
    for field in schema:
        name = field.name
        column = columns.get(name)
        if column is None:
            array = pa.repeat(pa.scalar(constants.get(name), type=field.type), count)
        elif name == "kind":
            array = _words(column, kinds)
        elif name in ("last_confirmed", "length"):
            array = pa.array(column, mask=~columns["has_head"])
        elif name == "payload_size":
            array = pa.array(column, mask=column < 0)
        elif name == "digest_ok":
            array = pa.array(column == GOOD, mask=column == UNKNOWN)
        elif name == "content_digest":
            array = pa.array(column, mask=~columns["is_entry"])
        else:
            array = pa.array(column, type=field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _words(indexes: Column, words: Sequence[str]) -> pa.Array:
    """Returns the words at the indexes; fast if all indexes are equal, as usual."""
    import pyarrow as pa

    if len(indexes) and (indexes == indexes[0]).all():
        return pa.repeat(pa.scalar(words[indexes[0]], type=pa.string()), len(indexes))
    return pa.DictionaryArray.from_arrays(pa.array(indexes, type=pa.int8()), pa.array(words)).cast(pa.string())
