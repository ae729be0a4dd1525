"""What can be under way in the modelled world, each as one small int; and who waits for it.

    kind        means                                                    may happen to it
    REQUEST     a bookie has not seen it, its sender waits               carried out; given up (then ADRIFT)
    ADRIFT      the same, but its sender waits no more                   carried out, at any time, or never
    ANSWER      a bookie's answer                                        delivered; given up
    WRITE       a compare-and-set the store has not seen                 carried out; its answer given up
    WRITE_ADRIFT the same, but its sender waits no more                  carried out, at any time, or never
    WRITTEN     the store's answer: done                                 delivered; given up
    CONFLICT    the store's answer: another version                      delivered (the client reads); given up
    LOOKUP      a read of the metadata                                   carried out
    FOUND       its answer, as it was then                               delivered
    CHOICE      replacements to be chosen                                chosen, every possible way

Loss needs no step of its own: a request that is lost is one that is given up and never carried out, and an answer
that is lost is one that is given up. Nor does the death of a client: it is one that takes no more steps.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

REQUEST, ADRIFT, ANSWER, WRITE, WRITE_ADRIFT, WRITTEN, CONFLICT, LOOKUP, FOUND, CHOICE = range(10)
OPEN: Final = frozenset((REQUEST, ANSWER, WRITE, WRITTEN, CONFLICT, LOOKUP, FOUND, CHOICE))


class Request(NamedTuple):
    """What a bookie is asked: entry bytes for an add, None for a read. `bookie` counts from 0."""

    index: int
    bookie: int
    entry_id: int
    body: bytes | None
    flags: int


class Message(NamedTuple):
    """One thing under way. body: a Request, an answer (Request, status, bytes), or what the kind needs."""

    kind: int
    client: int
    body: Any


class Messages:
    """All messages that ever were, by number from 1."""

    def __init__(self, recoverers: int) -> None:
        self.all: list[Message] = [Message(-1, -1, None)]
        self._numbers: dict[Message, int] = {}
        self._swapped: list[int] = [0]
        self._two = recoverers == 2

    def number(self, kind: int, client: int, body: Any) -> int:
        """The number of a message."""
        message = Message(kind, client, body)
        found = self._numbers.get(message)
        if found is None:
            found = self._numbers[message] = len(self.all)
            self.all.append(message)
            self._swapped.append(found)
            if self._two and client in (1, 2):
                other = self.number(kind, 3 - client, body)
                self._swapped[found], self._swapped[other] = other, found
        return found

    def swapped(self, net: tuple[int, ...]) -> tuple[int, ...]:
        """The same messages with the two recoverers' names exchanged."""
        swapped = self._swapped
        return tuple(sorted([swapped[m] for m in net]))
