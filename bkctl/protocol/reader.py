"""Reading without sockets: which replica to read next, and the result of the replies so far.

    one entry     replicas in write-set order, the next on any error or bad digest, or early when one is slow;
                  found at the first good copy; absent only if Qw − Qa + 1 said so explicitly; else unknown
    last entry    every bookie of the ensemble is asked; done at coverage with at least one valid answer

"Absent" and "unknown" are distinguished everywhere: a time-out, a lost connection, a bad digest or a bookie that is not
sure (UNKNOWN_LEDGER_STATE) never counts as "no such entry".

One reading is stricter than upstream's: an answer whose digest is wrong does not count towards coverage; upstream
counts it, as its status is OK.

Source: PendingReadOp.java, ReadOpBase.java, ReadLastConfirmedOp.java, PendingReadLacOp.java.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final

from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.quorum import EXPLICITLY_ABSENT, KNOWN, UNREACHABLE, Quorum


@unique
class Verdict(Enum):
    """The result of the replies for one entry so far."""

    OPEN = "open"
    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class ReplicaRead:
    """One entry, asked of one replica after another.

    Args:
        order: ensemble indexes in the order to ask; the write set by default.
    """

    __slots__ = ("answers", "asked", "entry_id", "found", "order", "quorum")

    def __init__(self, quorum: Quorum, entry_id: int, order: tuple[int, ...] | None = None) -> None:
        self.quorum = quorum
        self.entry_id = entry_id
        self.order = order or write_set(entry_id, quorum.ensemble_size, quorum.write_quorum_size)
        self.asked = 0
        self.found = False
        self.answers: dict[int, int] = {}  # ensemble index -> status

    def clone(self) -> ReplicaRead:
        """A copy that shares nothing that changes."""
        other = ReplicaRead(self.quorum, self.entry_id, self.order)
        other.asked, other.found, other.answers = self.asked, self.found, dict(self.answers)
        return other

    def state(self) -> tuple[object, ...]:
        """All that decides what happens next, hashable."""
        return self.entry_id, self.order, self.asked, self.found, tuple(sorted(self.answers.items()))

    def ask(self) -> int | None:
        """The next index to ask, or None if all were."""
        if self.found or self.asked == len(self.order):
            return None
        self.asked += 1
        return self.order[self.asked - 1]

    def answer(self, index: int, status: int) -> None:
        """Notes an answer; OK only for bytes that were checked. The first answer of an index counts."""
        if index in self.order[: self.asked] and index not in self.answers:
            self.answers[index] = status
            self.found = self.found or status == Status.OK

    @property
    def waiting(self) -> bool:
        """True while a request is pending."""
        return len(self.answers) < self.asked

    @property
    def verdict(self) -> Verdict:
        """Found, absent, unknown, or still open."""
        if self.found:
            return Verdict.FOUND
        if self.quorum.absent(sum(1 << i for i, s in self.answers.items() if s in EXPLICITLY_ABSENT)):
            return Verdict.ABSENT
        return Verdict.UNKNOWN if len(self.answers) == len(self.order) else Verdict.OPEN

    def telling_status(self) -> int:
        """The most significant reply: the first; "not here" gives way to any other, "unreachable" to any but that."""
        statuses = list(self.answers.values())
        telling = statuses[0] if statuses else UNREACHABLE
        for status in statuses[1:]:
            gives_way = telling == UNREACHABLE and status not in EXPLICITLY_ABSENT
            if gives_way or telling in EXPLICITLY_ABSENT:
                telling = status
        return telling


NOTHING: Final = (-1, 0, -1)
"""No candidate yet: last confirmed, length, entry that said so."""


class Survey:
    """A question to every bookie of an ensemble: fenced? last confirmed? Done at coverage with a valid answer."""

    __slots__ = ("answers", "best", "quorum")

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.answers: dict[int, int] = {}
        self.best: tuple[int, int, int] = NOTHING  # last confirmed, length, entry id

    def clone(self) -> Survey:
        """A copy that shares nothing that changes."""
        other = Survey(self.quorum)
        other.answers, other.best = dict(self.answers), self.best
        return other

    def state(self) -> tuple[object, ...]:
        """All that decides what happens next, hashable."""
        return self.best, tuple(sorted(self.answers.items()))

    def answer(self, index: int, status: int, candidate: tuple[int, int, int] = NOTHING) -> None:
        """Notes an answer; candidate is what a checked entry or packet said. The last answer of an index counts."""
        self.answers[index] = status
        if candidate[0] > self.best[0]:
            self.best = candidate

    @property
    def covered(self) -> bool:
        """True once enough bookies gave an answer that is known for sure."""
        known = [i for i, s in self.answers.items() if s in KNOWN]
        return bool(known) and self.quorum.covered(sum(1 << i for i in known))

    @property
    def exhausted(self) -> bool:
        """True once every bookie answered or was abandoned."""
        return len(self.answers) == self.quorum.ensemble_size
