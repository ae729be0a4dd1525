"""Progress of long work on stderr: an updated line on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

MOVE_S: Final = 0.2
"""Between two updates on a terminal."""
LINE_S: Final = 10.0
"""Between two lines without a terminal."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Progress:
    """Counts items and bytes and shows them, their rate, and the time left where the total is known.

    Args:
        out: stderr; None shows nothing.
        terminal: True if out is a terminal.
        unit: what the items are, in the plural.
        total: how many there will be, or None.
    """

    def __init__(self, out: TextIO | None, unit: str, *, terminal: bool, total: int | None = None) -> None:
        self._out = out
        self._unit = unit
        self._terminal = terminal
        self._total = total
        self._items = 0
        self._bytes = 0
        self._start = self._shown = time.monotonic()
        self._width = 0

    def add(self, items: int, size_bytes: int = 0) -> None:
        """Adds completed items."""
        self._items += items
        self._bytes += size_bytes
        now = time.monotonic()
        if self._out is not None and now - self._shown >= (MOVE_S if self._terminal else LINE_S):
            self._shown = now
            self._show(self._out, now)

    def end(self) -> None:
        """Removes the updated line."""
        if self._out is not None and self._terminal and self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()

    def text(self, elapsed_s: float) -> str:
        """The progress as text."""
        elapsed_s = max(elapsed_s, 1e-9)
        words = [f"{self._items}{f' of {self._total}' if self._total is not None else ''} {self._unit}"]
        if self._bytes:
            words += [size_words(self._bytes), f"{size_words(self._bytes / elapsed_s)}/s"]
        words.append(f"{self._items / elapsed_s:.0f} {self._unit}/s")
        if self._total is not None and self._items:
            words.append(f"{max(self._total - self._items, 0) * elapsed_s / self._items:.0f} s left")
        return ", ".join(words)

    def _show(self, out: TextIO, now: float) -> None:
        text = self.text(now - self._start)
        if self._terminal:
            out.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            out.write(text + "\n")
        out.flush()


def size_words(size_bytes: float) -> str:
    """1536 → 1.5 KiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} B" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"
