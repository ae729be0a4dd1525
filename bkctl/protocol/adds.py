"""The adds in flight: sent to an ensemble, not yet confirmed. Shared by the writer and by recovery's write-back.

One int an entry holds its acknowledgements; no object is created for an (entry, bookie). The rules:

* An answer of a bookie that is no longer at its index is ignored: it was replaced.
* Entries are confirmed strictly in order, and only by `advance()`, which is not called during an ensemble change.
  So the last confirmed entry stands still from the moment a change is begun until it is settled, and a new
  ensemble that starts right after it takes over every entry in flight.
* A new bookie at an index takes away the acknowledgement that the old one gave; an entry that was complete
  may so become incomplete, and the same bytes are sent again.
* A refusal for an entry that is complete anyway is remembered, and acted on when the next entry is appended.

Source: PendingAddOp.java, LedgerHandle.java (unsetSuccessAndSendWriteRequest, handleBookieFailure).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.protocol.actions import Action, SendAdd
from bkctl.protocol.quorum import Quorum


class AddWindow:
    """A queue of sealed entries with their acknowledgements.

    Args:
        ensemble: the bookies they go to now.
        last_confirmed: the next entry is the one after it.
        flags: of every add.
        delay_change: tolerate refusals as long as Qa can still be reached (Java's delayEnsembleChange).
    """

    __slots__ = (
        "_acks",
        "_delay_change",
        "_entries",
        "_flags",
        "_refusals",
        "delayed",
        "ensemble",
        "failing",
        "last_confirmed",
        "quorum",
    )

    def __init__(
        self,
        quorum: Quorum,
        ensemble: tuple[BookieId, ...],
        last_confirmed: int,
        *,
        flags: int = 0,
        delay_change: bool = False,
    ) -> None:
        self.quorum = quorum
        self.ensemble = ensemble
        self.last_confirmed = last_confirmed
        self.failing: dict[int, BookieId] = {}  # to be replaced; nothing is sent there meanwhile
        self.delayed: dict[int, BookieId] = {}  # to be replaced when the next entry comes
        self._flags = flags
        self._delay_change = delay_change
        self._entries: list[bytes] = []
        self._acks: list[int] = []
        self._refusals: dict[int, int] = {}  # only with delay_change

    def clone(self) -> AddWindow:
        """A copy that shares nothing that changes."""
        other = AddWindow(
            self.quorum, self.ensemble, self.last_confirmed, flags=self._flags, delay_change=self._delay_change
        )
        other.failing = dict(self.failing)
        other.delayed = dict(self.delayed)
        other._entries = list(self._entries)
        other._acks = list(self._acks)
        other._refusals = dict(self._refusals)
        return other

    def state(self) -> tuple[object, ...]:
        """All that decides what happens next, hashable."""
        return (
            self.ensemble,
            self.last_confirmed,
            tuple(self._acks),
            tuple(self._entries),
            tuple(sorted(self.failing.items())),
            tuple(sorted(self.delayed.items())),
            tuple(sorted(self._refusals.items())),
        )

    @property
    def last_pushed(self) -> int:
        """The newest entry in flight, or the last confirmed."""
        return self.last_confirmed + len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def first_entry(self) -> bytes | None:
        """The sealed bytes of the oldest entry on its way."""
        return self._entries[0] if self._entries else None

    def push(self, entries: list[bytes]) -> list[Action]:
        """Takes entries after the newest, and sends each to its write set; failing indexes get theirs later."""
        first = self.last_pushed + 1
        self._entries.extend(entries)
        self._acks.extend([0] * len(entries))
        indexes: Sequence[int] = range(self.quorum.ensemble_size)
        if self.failing:
            indexes = [i for i in indexes if i not in self.failing]
        return self._send(first, indexes)

    def ack(self, index: int, bookie: BookieId, entry_ids: Iterable[int]) -> None:
        """Counts what one bookie acknowledged."""
        if self.ensemble[index] != bookie:
            return
        acks, first, bit = self._acks, self.last_confirmed + 1, 1 << index
        end = first + len(acks)
        for entry_id in entry_ids:
            if first <= entry_id < end:
                acks[entry_id - first] |= bit

    def refuse(self, index: int, bookie: BookieId, entry_ids: Iterable[int], status: int) -> None:
        """Records that one bookie refused these entries; `failing` or `delayed` contains its index."""
        if self.ensemble[index] != bookie:
            return
        first, quorum = self.last_confirmed + 1, self.quorum
        for entry_id in entry_ids:
            at = entry_id - first
            if at >= len(self._acks):
                continue
            if at < 0 or quorum.complete(self._acks[at]):
                if not self._delay_change:
                    self.delayed[index] = bookie
            elif not self._delay_change or status == Status.READ_ONLY:
                self.failing[index] = bookie
            else:
                refusals = self._refusals.get(entry_id, 0) | 1 << index
                self._refusals[entry_id] = refusals
                if quorum.hopeless(refusals):
                    self.failing.update((i, b) for i, b in enumerate(self.ensemble) if refusals >> i & 1)

    def take_delayed(self) -> None:
        """Moves what was put off into `failing`: the next entry comes."""
        self.failing.update(self.delayed)
        self.delayed.clear()

    def advance(self) -> bool:
        """Confirms from the oldest entry on as long as each is complete; True if any was."""
        needed, count = self.quorum.ack_quorum_size, 0
        for acks in self._acks:
            if acks.bit_count() < needed:
                break
            count += 1
        if not count:
            return False
        del self._acks[:count]
        del self._entries[:count]
        self.last_confirmed += count
        if self._refusals:
            self._refusals = {e: r for e, r in self._refusals.items() if e > self.last_confirmed}
        return True

    def adopt(self, ensemble: tuple[BookieId, ...]) -> list[Action]:
        """Goes over to another ensemble: forgets what replaced bookies acknowledged, sends to the new ones."""
        changed = [i for i, (old, new) in enumerate(zip(self.ensemble, ensemble, strict=True)) if old != new]
        self.ensemble = ensemble
        for waiting in (self.failing, self.delayed):
            for index in [i for i, b in waiting.items() if ensemble[i] != b]:
                del waiting[index]
        if not changed:
            return []
        keep = ~sum(1 << i for i in changed)
        self._acks = [acks & keep for acks in self._acks]
        self._refusals = {e: r & keep for e, r in self._refusals.items()}
        return self._send(self.last_confirmed + 1, changed)

    def retry(self, indexes: Iterable[int]) -> list[Action]:
        """Retries failing bookies without a replacement; they are no longer failing."""
        again = [i for i in indexes if self.failing.pop(i, None) is not None]
        self._refusals = {e: r & ~sum(1 << i for i in again) for e, r in self._refusals.items()}
        return self._send(self.last_confirmed + 1, again, unacknowledged=True)

    def drain(self) -> tuple[int, int] | None:
        """Drops all unconfirmed entries; returns the first and the last."""
        if not self._entries:
            return None
        dropped = self.last_confirmed + 1, self.last_pushed
        self._entries, self._acks, self._refusals = [], [], {}
        self.failing.clear()
        self.delayed.clear()
        return dropped

    def _send(self, first: int, indexes: Sequence[int], *, unacknowledged: bool = False) -> list[Action]:
        """One SendAdd an index, of the entries from first on that belong there."""
        start = first - self.last_confirmed - 1
        entries = tuple(self._entries[start:])
        if not entries:
            return []
        size, width = self.quorum.ensemble_size, self.quorum.write_quorum_size
        everything = range(first, first + len(entries))
        actions: list[Action] = []
        for index in indexes:
            if size == width and not unacknowledged:
                actions.append(SendAdd(index, self.ensemble[index], everything, entries, self._flags))
                continue
            ids = tuple(
                e
                for e in everything
                if (index - e) % size < width
                and not (unacknowledged and self._acks[e - self.last_confirmed - 1] >> index & 1)
            )
            if ids:
                chosen = tuple(entries[e - first] for e in ids)
                actions.append(SendAdd(index, self.ensemble[index], ids, chosen, self._flags))
        return actions
