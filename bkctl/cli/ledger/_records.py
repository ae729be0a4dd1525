"""Payloads from a stream of bytes: lines, or length-prefixed records; and back."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from io import BufferedIOBase, RawIOBase
from typing import BinaryIO, Final, Protocol, cast

from bkctl.errors import Corrupt, TornTail
from bkctl.world import ThreadWorker

CHUNK_BYTES: Final = 256 * 1024
PAYLOAD_BYTES_MAX: Final = 5 * 1024 * 1024 - 1024
"""Below a bookie's largest frame, with room for header and digest. Source: nettyMaxFrameSizeBytes."""
LENGTH: Final = struct.Struct(">i")


class Splitter(Protocol):
    """Splits a stream of bytes into payloads; chunks may have any size."""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete after this chunk."""

    def end(self) -> list[bytes]:
        """The remaining payloads at the end of the stream."""


class Lines:
    """Each line is a payload, without its line end; the last line may lack it."""

    def __init__(self, source: str = "stdin") -> None:
        self._source = source
        self._offset = 0
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete after this chunk."""
        first, *rest = data.split(b"\n")
        self._keep(first)
        lines = []
        for part in rest:
            lines.append(self._take())
            self._keep(part)
        return lines

    def end(self) -> list[bytes]:
        """A last line without line end."""
        return [self._take()] if self._size else []

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > PAYLOAD_BYTES_MAX:
            raise _too_large(self._source, self._offset, self._size)

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        self._offset += self._size + 1
        self._parts, self._size = [], 0
        return line


class LengthPrefixed:
    """Each payload follows its i32 (big endian) length."""

    def __init__(self, source: str = "stdin") -> None:
        self._source = source
        self._offset = 0
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The records that are complete after this chunk."""
        self._data += data
        records, at = [], 0
        while len(self._data) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._data, at)
            if not 0 <= size <= PAYLOAD_BYTES_MAX:
                raise _too_large(self._source, self._offset + at, size)
            end = at + LENGTH.size + size
            if end > len(self._data):
                break
            records.append(bytes(self._data[at + LENGTH.size : end]))
            at = end
        del self._data[:at]
        self._offset += at
        return records

    def end(self) -> list[bytes]:
        """Checks that no incomplete record is left.

        Raises:
            TornTail: the last record is incomplete.
        """
        if self._data:
            raise TornTail(
                "the last record is incomplete",
                source=self._source,
                offset=self._offset,
                expected="i32 length and so many bytes",
                found=f"{len(self._data)} bytes",
            )
        return []


def _too_large(source: str, offset: int, size: int) -> Corrupt:
    return Corrupt("payload size", source=source, offset=offset, expected=f"0..{PAYLOAD_BYTES_MAX}", found=size)


def prefixed(payload: bytes) -> bytes:
    """The payload with its length before it."""
    return LENGTH.pack(len(payload)) + payload


async def payloads(stream: BinaryIO, splitter: Splitter) -> AsyncIterator[list[bytes]]:
    """Yields batches of payloads as bytes arrive. Reads in a daemon thread, which ^C does not wait for.

    Reads the raw stream below a buffered one: a thread that waits in a buffered stdin holds its lock, and Python aborts
    at exit if that lock is taken.
    """
    import asyncio  # Imported here to keep the help of `ledger` fast.

    raw: RawIOBase | None = getattr(stream, "raw", None)
    read = cast(BufferedIOBase, stream).read1 if raw is None else raw.read
    worker = ThreadWorker("stdin")
    loop = asyncio.get_running_loop()
    while True:
        chunk: asyncio.Future[bytes] = loop.create_future()

        def done(data: bytes | None, error: BaseException | None, chunk: asyncio.Future[bytes] = chunk) -> None:
            if chunk.cancelled():
                return
            if error is not None:
                chunk.set_exception(error)
            else:
                chunk.set_result(data or b"")

        worker.submit(lambda: read(CHUNK_BYTES) or b"", done)
        data = await chunk
        batch = splitter.feed(data) if data else splitter.end()
        if batch:
            yield batch
        if not data:
            worker.close()
            return
