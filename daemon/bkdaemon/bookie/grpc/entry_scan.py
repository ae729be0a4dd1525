"""Reads entries from entry logs and checks their digests, in a process beside a bookie.

    python -m bkdaemon.bookie.grpc.entry_scan      pickled Tasks on stdin, an encoded EntryBatch on stdout for each

It uses the bookie's files without its locks; its priority is below the bookie's (NICENESS). It exits at the end of
stdin.
"""

from __future__ import annotations

import os
import pickle
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

from google_crc32c import value

from bkctl.codec.checksum import Digest, digest_for
from bkctl.codec.entry import METADATA, METADATA_SIZE
from bkctl.codec.entry_log import log_name, split_location
from bkctl.codec.proto import admin_pb2 as pb
from bkctl.model.ledger import DigestType

NICENESS: Final = 10
WINDOW_BYTES: Final = 1 << 20
"""Bytes of a log that are read at once."""
LOGS_OPEN_MAX: Final = 64
ENTRY_BYTES_MAX: Final = 1 << 28
"""A larger size in a log is not valid."""
SIZE: Final = Struct("<I")
ROW: Final = Struct(
    ">q"  # ledger id
    "q"  # entry id
    "q"  # location
)
_FRAME: Final = Struct(">iqq")  # size, ledger id, entry id
_CRC32C_BODY: Final = METADATA_SIZE + 4
_HEAD: Final = Struct(
    ">q"  # ledger id
    "q"  # entry id
    "q"  # last confirmed
    "q"  # length
    "I"  # the CRC32C, or other bytes at its place
)
_WHOLE: Final = Struct(">i" + _HEAD.format[1:])  # size, then the head
_NO_HEAD: Final = (-1, -1, -1, -1, -1, 0)
_SEALS: Final[dict[int, DigestType]] = {
    pb.SEAL_CRC32: DigestType.CRC32,
    pb.SEAL_HMAC: DigestType.HMAC,
    pb.SEAL_DUMMY: DigestType.DUMMY,
}
COLUMNS: Final = ("ledger_id", "entry_id", "last_confirmed", "length", "payload_size", "size")


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of one ledger: those in the logs of a directory as ROWs, those in memory as bytes."""

    ledger_id: int
    seal: int
    password: bytes
    directory: str
    rows: bytes
    entries: tuple[bytes, ...] = ()


Task = list[Part]


class Logs:
    """Open entry logs, read in windows."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, int] = OrderedDict()

    def entries(self, directory: str, rows: bytes) -> Iterator[tuple[str, int, bytes | None]]:
        """Yields (file, offset, entry) of ROWs in the order of the log; None for an unreadable entry."""
        found = sorted(ROW.iter_unpack(rows), key=itemgetter(2))
        window, start, log_id, path = b"", 0, -1, ""
        for ledger_id, entry_id, location in found:
            own, offset = split_location(location)
            if own != log_id:
                log_id, window, start, path = own, b"", 0, str(Path(directory) / log_name(own))
            at = offset - 4 - start
            whole = self._whole(window, at)
            if whole is None:
                start, at = offset - 4, 0
                window = self._window(path, start)
                whole = self._whole(window, 0)
            if whole is None or window[at + 4 : at + 20] != _IDS(ledger_id, entry_id):
                yield path, offset, None
            else:
                yield path, offset, window[at + 4 : at + 4 + whole]

    @staticmethod
    def _whole(window: bytes, at: int) -> int | None:
        """Returns the size of the entry whose frame begins at an offset, if the window has all of it."""
        if at < 0 or at + _FRAME.size > len(window):
            return None
        size = int.from_bytes(window[at : at + 4], "big")
        return size if size >= METADATA_SIZE and at + 4 + size <= len(window) else None

    def window(self, directory: str, location: int) -> bytes:
        """Returns bytes of a log from the frame of the entry at a location on, with the complete entry if possible."""
        log_id, offset = split_location(location)
        return self._window(str(Path(directory) / log_name(log_id)), offset - 4)

    def _window(self, path: str, start: int) -> bytes:
        try:
            file = self._open(path)
            window = os.pread(file, WINDOW_BYTES, start)
            size = int.from_bytes(window[:4], "big")
            if len(window) < size + 4 <= ENTRY_BYTES_MAX:
                window += os.pread(file, size + 4 - len(window), start + len(window))
        except OSError:
            return b""  # the log was removed, or the disk failed
        return window

    def _open(self, path: str) -> int:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._files) > LOGS_OPEN_MAX:
                os.close(self._files.popitem(last=False)[1])
        return file


_IDS: Final = Struct(">qq").pack


class Rows:
    """Builds an EntryBatch."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in COLUMNS}
        self._words = array("I")  # of the content digests, the lower word first
        self._verdicts = bytearray()
        self.batch = pb.EntryBatch()

    def take(self, part: Part, logs: Logs) -> None:
        """Adds the entries of a part."""
        digest = digest_for(_SEALS[part.seal], part.password) if part.seal in _SEALS else None
        sealed = part.seal == pb.SEAL_CRC32C
        rows = self._plain(part, logs, sealed) if digest is None else part.rows
        for file, offset, entry in logs.entries(part.directory, rows):
            if entry is None:
                self.batch.unreadable += 1
            elif self._add(entry, digest, sealed) == 0:
                self.batch.bad.add(row=len(self._verdicts) - 1, file=file, offset=offset)
        for entry in part.entries:
            self._add(entry, digest, sealed)

    def _plain(self, part: Part, logs: Logs, sealed: bool) -> bytes:
        """Adds the entries that are at their location with a valid CRC32C; returns the ROWs of all others.

        These are nearly all entries: the loop does the work of _add and Logs.entries for them.
        """
        columns, others = self._columns, bytearray()
        add_id, add_confirmed = columns["entry_id"].append, columns["last_confirmed"].append
        add_length, add_size = columns["length"].append, columns["size"].append
        add_word = self._words.append
        window, start, last, before, unpack = b"", 0, -1, len(self._verdicts), _WHOLE.unpack_from
        for row in sorted(ROW.iter_unpack(part.rows), key=itemgetter(2)):
            at = row[2] - start
            size, ledger_id, entry_id, last_confirmed, length, stored = (
                unpack(window, at) if 0 <= at <= last else _NO_HEAD
            )
            if not _CRC32C_BODY <= size <= len(window) - at - 4:
                window, start, at = logs.window(part.directory, row[2]), row[2], 0
                last = len(window) - _WHOLE.size
                size, ledger_id, entry_id, last_confirmed, length, stored = unpack(window) if last >= 0 else _NO_HEAD
            if not _CRC32C_BODY <= size <= len(window) - at - 4 or entry_id != row[1] or ledger_id != part.ledger_id:
                others += ROW.pack(*row)
                continue
            crc = value(window[at + 4 : at + 36] + window[at + 40 : at + 4 + size])
            if crc != stored:
                others += ROW.pack(*row)
                continue
            add_id(entry_id)
            add_confirmed(last_confirmed)
            add_length(length)
            add_size(size)
            add_word(stored)
            add_word(crc)
        self._verdicts += b"\1" * (len(columns["size"]) - before)
        columns["ledger_id"].extend([part.ledger_id] * (len(columns["size"]) - before))
        columns["payload_size"].extend(size - _CRC32C_BODY for size in columns["size"][before:])
        return bytes(others)

    def _add(self, entry: bytes, digest: Digest | None, sealed: bool) -> int:
        size, columns = len(entry), self._columns
        if size >= _CRC32C_BODY:
            ledger_id, entry_id, last_confirmed, length, stored = _HEAD.unpack_from(entry)
            crc = value(entry[:METADATA_SIZE] + entry[_CRC32C_BODY:])
        else:
            ledger_id, entry_id, last_confirmed, length = METADATA.unpack_from(entry)
            stored = int.from_bytes(entry[METADATA_SIZE:].ljust(4, b"\0"), "big")
            crc = value(entry[:METADATA_SIZE])
        if digest is None:
            fits = crc == stored and size >= _CRC32C_BODY
            verdict = 1 if fits else 0 if sealed else -1
            payload = size - _CRC32C_BODY if fits or sealed else -1
        else:
            verdict, payload = _checked(entry, digest)
        columns["ledger_id"].append(ledger_id)
        columns["entry_id"].append(entry_id)
        columns["last_confirmed"].append(last_confirmed)
        columns["length"].append(length)
        columns["payload_size"].append(payload)
        self._words.extend((stored, crc))
        columns["size"].append(size)
        self._verdicts.append(verdict & 0xFF)
        return verdict

    def encoded(self) -> bytes:
        """Returns the encoded batch."""
        batch = self.batch
        batch.rows = len(self._verdicts)
        for name, column in (*self._columns.items(), ("content_digest", self._words)):
            if sys.byteorder == "big":
                column.byteswap()
            setattr(batch, name, column.tobytes())
        batch.digest_ok = bytes(self._verdicts)
        data: bytes = batch.SerializeToString()
        return data


def _checked(entry: bytes, digest: Digest) -> tuple[int, int]:
    body = METADATA_SIZE + digest.size
    if digest.type is DigestType.DUMMY:
        return -1, len(entry) - body
    fits = len(entry) >= body and digest.compute(entry[:METADATA_SIZE], entry[body:]) == entry[METADATA_SIZE:body]
    return int(fits), max(len(entry) - body, 0)


def answer(task: Task, logs: Logs) -> bytes:
    """Returns the encoded EntryBatch of a task."""
    rows = Rows()
    for part in task:
        rows.take(part, logs)
    return rows.encoded()


def serve(tasks: BinaryIO, batches: BinaryIO) -> None:
    """Processes tasks until the end of the input."""
    logs = Logs()
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        data = answer(task, logs)
        batches.write(SIZE.pack(len(data)))
        batches.write(data)
        batches.flush()


def main() -> None:
    """Processes tasks from stdin to stdout."""
    os.nice(NICENESS)
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the caller does not need the remaining batches


if __name__ == "__main__":
    main()
