"""Reads the bytes of ZooKeeper's files, plain or compressed, from beginning to end.

    snapshot.<zxid>.gz        one gzip stream
    snapshot.<zxid>.snappy    header  8 bytes 82 "SNAPPY" 00, i32 version, i32 least version that reads it
                              blocks  i32 size, raw snappy of about 32 KiB; a header may be between blocks too

Source: SnapStream.java; SnappyOutputStream.java of snappy-java, whose format is not the framing format of snappy.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Final

from bkctl.codec.zookeeper_files import END_OF_SNAPSHOT
from bkctl.errors import BadBytes, Corrupt, TornTail, UsageError

COMPRESSED: Final = ("gz", "snappy")
"""Endings of compressed snapshots."""
WINDOW_SIZE: Final = 1 << 20
BLOCK_SIZE_MAX: Final = 1 << 28
"""Bytes of a compressed block; a larger size is treated as damage."""
KNOWN_MAX: Final = 64
_SNAPPY_HEADER: Final = struct.Struct(
    ">8s"  # magic
    "i"  # version
    "i"  # least compatible version
)
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\0"
_SIZE: Final = struct.Struct(">i")

Read = Callable[[int, int], bytes]


@contextmanager
def opened(path: Path) -> Iterator[Read]:
    """Opens a file; the value is a function read(size, offset).

    A compressed file must be read sequentially: each offset must be the end of the previous read.

    Raises:
        UsageError: the package that reads snappy is not installed.
    """
    with path.open("rb") as file:
        if path.suffix == ".gz":
            yield _Sequence(_gunzipped(file, str(path))).read
        elif path.suffix == ".snappy":
            yield _Sequence(_unsnapped(file, str(path))).read
        else:
            yield lambda size, offset: os.pread(file.fileno(), size, offset)


def whole_size(path: Path) -> int | None:
    """Returns the decompressed bytes of a complete snapshot; None for one that is not complete."""
    stat = path.stat()
    return _whole_size(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(KNOWN_MAX)
def _whole_size(path: Path, size: int, _: int) -> int | None:
    if path.suffix.removeprefix(".") not in COMPRESSED:
        with path.open("rb") as file:
            file.seek(max(size - len(END_OF_SNAPSHOT), 0))
            return size if file.read() == END_OF_SNAPSHOT else None
    end, total = b"", 0
    try:
        with opened(path) as read:
            while data := read(WINDOW_SIZE, total):
                total += len(data)
                end = (end + data)[-len(END_OF_SNAPSHOT) :]
    except BadBytes:
        return None
    return total if end == END_OF_SNAPSHOT else None


class _Sequence:
    """Reads an iterator of pieces of bytes sequentially, in any sizes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._data = bytearray()
        self._offset = 0

    def read(self, size: int, offset: int) -> bytes:
        """Returns `size` bytes, fewer at the end; offset must be the end of the previous read."""
        assert offset == self._offset, "a compressed file is read from its beginning to its end"
        while len(self._data) < size and (piece := next(self._pieces, None)) is not None:
            self._data += piece
        found = bytes(self._data[:size])
        del self._data[:size]
        self._offset += len(found)
        return found


def _gunzipped(file: BinaryIO, source: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while data := stream.read(WINDOW_SIZE):
                yield data
    except EOFError:
        size = file.seek(0, os.SEEK_END)
        raise TornTail("gzip stream", source=source, offset=size, expected="its end", found="nothing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Corrupt("gzip stream", source=source, offset=file.tell(), expected="gzip", found=str(error)) from None


def _unsnapped(file: BinaryIO, source: str) -> Iterator[bytes]:
    if find_spec("cramjam") is None:
        raise UsageError(f"{source}: snappy is read with cramjam", hint="pip install 'bkctl[spark]'")
    from cramjam import DecompressionError, snappy

    head = file.read(_SNAPPY_HEADER.size)
    if head[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        raise Corrupt("header of snappy", source=source, offset=0, expected=_SNAPPY_MAGIC, found=head[:8])
    while prefix := file.read(_SIZE.size):
        offset = file.tell() - len(prefix)
        if prefix == _SNAPPY_MAGIC[: _SIZE.size]:
            file.read(_SNAPPY_HEADER.size - _SIZE.size)
            continue
        size = _SIZE.unpack(prefix)[0] if len(prefix) == _SIZE.size else 0
        if not 0 < size <= BLOCK_SIZE_MAX:
            raise Corrupt("block of snappy", source=source, offset=offset, expected="a size", found=prefix)
        block = file.read(size)
        if len(block) < size:
            raise TornTail("block of snappy", source=source, offset=offset, expected=size, found=len(block))
        try:
            yield bytes(snappy.decompress_raw(block))
        except DecompressionError as error:
            raise Corrupt(
                "block of snappy", source=source, offset=offset, expected="snappy", found=str(error)
            ) from None
