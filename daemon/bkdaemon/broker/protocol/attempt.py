"""The creation of one producer or consumer, which its client may cancel and restart with the same id.

A client whose request takes too long sends a close and then the request again. The result of the first request must
not replace that of the second. Source: ServerCnx.java (producers and consumers are futures there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from bkctl.codec.pulsar import ErrorCode

T = TypeVar("T")


class Attempt(Generic[T]):
    """One attempt to create a producer or consumer; until it is `done` the table has None for its number.

    Args:
        table: the created objects, by number.
        latest: the attempts of that table that are in progress, by number.
    """

    __slots__ = ("_latest", "_number", "_table")

    def __init__(self, table: dict[int, T | None], latest: dict[int, Attempt[T]], number: int) -> None:
        self._table = table
        self._latest = latest
        self._number = number
        latest[number] = self
        table[number] = None

    @property
    def active(self) -> bool:
        """False once the client has closed this producer or consumer, or has disconnected."""
        return self._latest.get(self._number) is self and self._table.get(self._number, ...) is None

    def failing(self, send_error: Callable[[ErrorCode, str], None]) -> Callable[[ErrorCode, str], None]:
        """Returns a function that ends the attempt and sends the error, unless the client has cancelled it."""

        def failed(code: ErrorCode, text: str) -> None:
            if self.active:
                send_error(code, text)
            self.done()

        return failed

    def done(self, created: T | None = None) -> None:
        """Ends the attempt with the created object, or without one if it failed."""
        if self.active:
            if created is None:
                del self._table[self._number]
            else:
                self._table[self._number] = created
        if self._latest.get(self._number) is self:
            del self._latest[self._number]
