"""Settings of the C library's allocator: it keeps freed memory, or returns it to the kernel.

A bookie fills and empties a write cache all the time. By default glibc returns that memory to the kernel each time and
requests it again page by page: half a microsecond for every KB that arrives, as much as storing the entry. The memory
that is kept is bounded by the sizes of the caches. A broker keeps little memory for long: free memory between the
pieces in use is returned from time to time. With other C libraries (musl, macOS) nothing is done.
Source: mallopt(3), mallinfo(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import resource
from functools import lru_cache
from typing import Any, Final

MIB: Final = 1 << 20
M_TRIM_THRESHOLD: Final = -1
M_TOP_PAD: Final = -2
M_MMAP_THRESHOLD: Final = -3
SETTINGS: Final = {
    M_TRIM_THRESHOLD: 1024 * MIB,  # free memory at the top of the heap that is kept
    M_TOP_PAD: 16 * MIB,  # requested at once when the heap grows
    M_MMAP_THRESHOLD: 32 * MIB,  # buffers up to this size are in the heap; the largest value that glibc allows
}


class _HeapInfo(ctypes.Structure):
    """struct mallinfo2; fordblks are the bytes of all free pieces of the heap, whether the kernel has their pages."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class Slack:
    """Keeps the free memory in the heap of this process below a bound.

    Args:
        free_bytes_max: bound of the free memory, and of the growth of the process since memory was last returned.
    """

    def __init__(self, free_bytes_max: int) -> None:
        self._free_bytes_max = free_bytes_max
        self._resident_after = 0

    def give_back(self) -> bool:
        """Returns free pages to the kernel if too much is free; False if that was not necessary.

        Takes about a millisecond for every 10 MB that are returned.
        """
        library, most = _library(), self._free_bytes_max
        if library is None or library.mallinfo2().fordblks <= most:
            return False
        if resident_bytes() < self._resident_after + most:
            return False
        library.malloc_trim(0)
        self._resident_after = resident_bytes()
        return True


def resident_bytes() -> int:
    """Returns the resident memory of this process (Linux)."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@lru_cache(maxsize=1)
def _library() -> Any:
    """Returns the C library; None if it lacks a function that `Slack` needs."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _HeapInfo
        library.malloc_trim.restype = ctypes.c_int
    except (OSError, AttributeError, TypeError):
        return None
    return library


def keep_memory() -> bool:
    """Applies SETTINGS to this process; False if the C library does not support them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    taken = [mallopt(name, value) == 1 for name, value in SETTINGS.items()]
    return all(taken)
