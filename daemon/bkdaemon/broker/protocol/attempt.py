"""The creation of one producer or consumer, which its client may cancel and restart with the same id.

A client whose request takes too long closes what it does not have yet, and asks again: what the first request brings
must not take the place of what the second does. Source: ServerCnx.java (producers and consumers are futures there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from bkctl.codec.pulsar import ErrorCode

T = TypeVar("T")


class Attempt(Generic[T]):
    """Until it is `done` the table has None for its number.

    Args:
        table: what is made already, by number.
        latest: the attempts of that table which are under way, by number.
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
        """False once the client has closed what is made here, or is gone."""
        return self._latest.get(self._number) is self and self._table.get(self._number, ...) is None

    def failing(self, tell: Callable[[ErrorCode, str], None]) -> Callable[[ErrorCode, str], None]:
        """Ends a failed attempt: sends the error to the client, unless the client has cancelled it."""

        def failed(code: ErrorCode, text: str) -> None:
            if self.active:
                tell(code, text)
            self.done()

        return failed

    def done(self, made: T | None = None) -> None:
        """It is made, or (None) is not going to be."""
        if self.active:
            if made is None:
                del self._table[self._number]
            else:
                self._table[self._number] = made
        if self._latest.get(self._number) is self:
            del self._latest[self._number]
