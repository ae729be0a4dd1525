"""Turns: the broker sends to the consumers of one connection one after another, if that is faster.

Consumers that share a connection share a process, and often one lock in it, as in Python. If all get messages at once,
all threads are busy at any time and compete for the lock: with four consumers of the official Python client a message
took 12 µs and 0.7 thread switches; in turns, 7 µs and 0.2 (`client_us` and `switches` of
`python -m tests.bench.broker --rows "catch-up Shared 100 B"`). A client whose threads run in parallel would be
slower in turns. The broker cannot know the kind of client: it tries both ways while there is a backlog, and keeps the
one that sends more messages:

    backlog for SUSTAINED_S ──► all (ALL_S) ──► turns (TURNS_S) ──► the faster one (KEEP_S) ──► all (ALL_S) …

A turn is as long as the consumer's permits; it ends when the consumer has requested half of them again, or after
TURN_S. So no consumer waits longer for a turn than TURN_S for each other consumer of its connection, and without a
backlog none waits: turns are used only while there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.consumer import ClientLink, Consumer

SUSTAINED_S: Final = 0.02
"""How long a backlog must last before the ways are tried."""
TURN_S: Final = 0.05
TURN_ENTRIES: Final = 2_000
ALL_S: Final = 0.08
ALL_SETTLE_S: Final = 0.02
TURNS_S: Final = 0.16
TURNS_SETTLE_S: Final = 0.1
"""How long each way is tried, and the start of it that is not counted, while clients process earlier messages."""
TRIED_MESSAGES_MIN: Final = 2_000
"""Messages that a trial needs to be conclusive."""
KEEP_S: Final = 10.0
GAIN_MIN: Final = 1.2
"""How many times faster turns must be to be kept."""


class Phase(Enum):
    """The phase of a trial."""

    ALL = "all at once is tried"
    TURNS = "turns are tried"
    KEPT = "the faster one is kept"


class Turns:
    """The consumers of one connection on one subscription, with a backlog.

    Attributes:
        taken: true while messages are sent in turns.
        phase: the current phase of the trial.
    """

    __slots__ = (
        "_all_per_s",
        "_begun_with",
        "_counted",
        "_counts_from_s",
        "_ends_s",
        "_holder",
        "_until_s",
        "phase",
        "taken",
    )

    def __init__(self, now_s: float) -> None:
        self._holder: Consumer | None = None
        self._begun_with = 0
        self._until_s = 0.0
        self._all_per_s = 0.0
        self._try(Phase.ALL, now_s)

    def _try(self, phase: Phase, now_s: float) -> None:
        self.phase, self.taken = phase, phase is Phase.TURNS
        self._counts_from_s = now_s + (TURNS_SETTLE_S if self.taken else ALL_SETTLE_S)
        self._ends_s = now_s + (TURNS_S if self.taken else ALL_S)
        self._counted = 0

    def begin(self, consumer: Consumer) -> None:
        """Begins a consumer's turn."""
        self._begun_with = consumer.permits

    def end(self, consumer: Consumer, now_s: float) -> None:
        """Records that a consumer has used its permits; the next turn waits for new permits, or for TURN_S."""
        if self.taken:
            self._holder, self._until_s = consumer, now_s + TURN_S

    def is_open(self, sent: Mapping[Consumer, int], now_s: float) -> bool:
        """True if the next turn may begin; `sent`: messages that are not subtracted from permits yet."""
        holder = self._holder
        if not self.taken or holder is None:
            return True
        asked = holder.permits - sent.get(holder, 0)
        if now_s < self._until_s and not holder.gone and asked < self._begun_with // 2:
            return False
        self._holder = None
        return True

    @property
    def over_s(self) -> float:
        """The latest end of the turn, in seconds of the event loop."""
        return self._until_s

    def count(self, messages: int, now_s: float) -> None:
        """Counts sent messages; at the end of a trial, starts the next one or keeps the faster way."""
        if now_s < self._ends_s:
            if now_s >= self._counts_from_s:
                self._counted += messages
            return
        per_s = self._counted / (now_s - self._counts_from_s)
        if self._counted < TRIED_MESSAGES_MIN:
            per_s = 0.0
        if self.phase is Phase.ALL:
            self._all_per_s = per_s
            self._try(Phase.TURNS, now_s)
        elif self.phase is Phase.TURNS:
            self.phase, self.taken = Phase.KEPT, per_s > GAIN_MIN * self._all_per_s
            self._ends_s = now_s + KEEP_S
        else:
            self._try(Phase.ALL, now_s)
        self._holder = None


def turns_of(consumers: Iterable[Consumer], now_s: float) -> dict[ClientLink, Turns]:
    """Returns Turns for each connection with several consumers; {} if consumers have different priorities."""
    members: dict[ClientLink, int] = {}
    priorities: set[int] = set()
    for consumer in consumers:
        priorities.add(consumer.priority)
        members[consumer.connection] = members.get(consumer.connection, 0) + 1
    if len(priorities) > 1:
        return {}
    return {connection: Turns(now_s) for connection, count in members.items() if count > 1}
