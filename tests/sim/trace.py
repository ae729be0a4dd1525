"""What happened in a run, in order: a running hash that two runs of one seed share, and lines for a person to read."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 4000  # the end of a run's story is kept, its beginning only when somebody prints it


class Trace:
    """Events as they come. `digest` covers all of them; `lines` holds the last ones.

    Fields must be values whose text does not depend on addresses or hash seeds: numbers, texts, bytes.
    """

    def __init__(self, time: Callable[[], float], show: Callable[[str], None] | None = None) -> None:
        self._time = time
        self._hash = hashlib.blake2b(digest_size=16)
        self._show = show
        self.count = 0
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def add(self, what: str, *fields: object) -> None:
        """Notes one event."""
        line = f"{self._time():.6f} {what} {' '.join(map(str, fields))}"
        self.count += 1
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        """One text for everything that happened so far."""
        return self._hash.hexdigest()
