"""Ledgers of Apache DistributedLog: log segments, and ledgers that are allocated for the next segment.

    NAMESPACE/STREAM/ID/ledgers/logrecs_…, inprogress_…   a segment: fields separated by `;`, the second is the ledger
    NAMESPACE/STREAM/ID/allocation                        the allocated ledger in decimal; may be empty
    NAMESPACE/.allocation_pool/…                          allocators as above

The first field of a segment holds the format (1 to 5) in its lowest byte. Pulsar's functions store their packages in
the namespace /pulsar/functions, BookKeeper's table service in /stream/storage.
Source: LogSegmentMetadata.java, LogMetadata.java, SimpleLedgerAllocator.java, DistributedLogConstants.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from bkctl.errors import Corrupt
from bkctl.meta.owners.base import STREAM, Owner, OwnerPlugin, Reference

DEFAULT_NAMESPACES: Final = ("/stream/storage", "/distributedlog", "/messaging/distributedlog")
"""BookKeeper's table service, the namespace of BookKeeper's own tools, and that of DistributedLog's sandbox."""
FUNCTIONS_NAMESPACE: Final = "/pulsar/functions"
"""Below the path of Pulsar's metadata."""
FORMAT_MAX: Final = 5
_FORMAT_MASK: Final = 0xFF
_SEGMENTS: Final = "ledgers"
_IN_PROGRESS: Final = "inprogress_"
_SEGMENT_PREFIXES: Final = ("logrecs_", _IN_PROGRESS)
_ALLOCATION: Final = "allocation"
_POOL: Final = ".allocation_pool"
_FIELDS_MIN: Final = 3
_DEPTH_MIN: Final = 3  # stream, log id, and one of `ledgers` and `allocation`


def plugin(namespaces: Sequence[str]) -> OwnerPlugin:
    """The plug-in for streams in these namespaces, given as absolute paths."""
    unique = tuple(dict.fromkeys(namespaces))
    return OwnerPlugin(
        "DistributedLog", unique, partial(references, unique), lambda _: None, lambda p: p.endswith("/ledgers")
    )


def references(namespaces: Sequence[str], path: str, data: bytes) -> Iterator[Reference]:
    """The ledger of a segment or an allocator.

    Raises:
        Corrupt: the node is a segment or an allocator and cannot be decoded.
    """
    namespace = max((n for n in namespaces if path.startswith(n + "/")), key=len, default=None)
    if namespace is None:
        return
    parts = path[len(namespace) + 1 :].split("/")
    if len(parts) > _DEPTH_MIN and parts[-2] == _SEGMENTS and parts[-1].startswith(_SEGMENT_PREFIXES):
        yield Reference(_segment(data, path), _stream(namespace, parts[:-3], path))
    elif len(parts) >= _DEPTH_MIN and parts[-1] == _ALLOCATION and data:
        yield Reference(_allocated(data, path), _stream(namespace, parts[:-2], path))
    elif parts[0] == _POOL and data:
        yield Reference(_allocated(data, path), _stream(namespace, parts, path))


def is_segment(path: str) -> bool:
    """True for the node of a log segment, false for an allocator's."""
    return path.rpartition("/")[2].startswith(_SEGMENT_PREFIXES)


def is_in_progress(path: str) -> bool:
    """True for the node of a segment that a writer may still append to."""
    return path.rpartition("/")[2].startswith(_IN_PROGRESS)


def _stream(namespace: str, parts: Sequence[str], path: str) -> Owner:
    return Owner(STREAM, "/".join((namespace, *parts)), path)


def _segment(data: bytes, source: str) -> int:
    fields = data.split(b";")
    try:
        numbers = [int(field) for field in fields]
    except ValueError:
        numbers = []
    if len(numbers) < _FIELDS_MIN or not 1 <= numbers[0] & _FORMAT_MASK <= FORMAT_MAX or numbers[1] < 0:
        raise Corrupt(
            "DistributedLog segment", source=source, offset=0, expected="format 1 to 5;ledger id;…", found=data
        )
    return numbers[1]


def _allocated(data: bytes, source: str) -> int:
    if not data.isdigit():
        raise Corrupt("DistributedLog allocator", source=source, offset=0, expected="a ledger id", found=data)
    return int(data)
