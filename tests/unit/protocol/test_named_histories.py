"""Orders of events in which one rule less loses a confirmed entry; each shows the deliberate break that it is for.

Both need messages that are under way for a long time between the same few steps: seeds of the simulator hardly ever
come there (an unanswered fencing read is repeated at once on a connection), so the messages are delivered by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerState
from bkctl.protocol.actions import ChooseReplacement, SendAdd, SendRead, WriteMetadata
from bkctl.protocol.recovery import RecoveryCore
from bkctl.protocol.writer import WriterCore
from tests.sim.mutations import MUTATIONS
from tests.unit.protocol.helpers import DIGEST, LEDGER, A, B, C, D, ledger
from tests.unit.protocol.test_writer_and_recovery import Cluster

ARRIVES, IS_LOST = 0, 1


class Script(Cluster):
    """A cluster whose messages arrive, or are lost, when the history says so."""

    def __init__(self) -> None:
        super().__init__(None, ledger((A, B, C), 3, 2))  # type: ignore[arg-type] # nothing is drawn
        self.writer = WriterCore(LEDGER, self.metadata, 0, DIGEST)

    def append(self, payload: bytes) -> None:
        """The writer adds an entry: three adds are under way."""
        self.post(self.writer, self.writer.append_many([payload]))

    def recover(self) -> RecoveryCore:
        """Somebody else takes the ledger over: its metadata says IN_RECOVERY."""
        core = RecoveryCore(LEDGER, self.metadata, self.version, DIGEST)
        self.post(core, core.start())
        self.happens(core, WriteMetadata)
        assert self.metadata.state is LedgerState.IN_RECOVERY
        return core

    def happens(
        self, core: Any, kind: type, bookie: BookieId | None = None, entry_id: int | None = None, fate: int = ARRIVES
    ) -> None:
        """The oldest such message of core."""
        found = next(item for item in self.under_way if item[0] is core and _is(item[1], kind, bookie, entry_id))
        self.under_way.remove(found)
        self.under_way.insert(0, found)
        if fate == ARRIVES:
            self.step(reliable=True)
            return
        self.under_way.pop(0)
        take = self.add if isinstance(found[1], SendAdd) else self.read
        take(core, found[1], fate, True)

    def goes_on(self, core: RecoveryCore, silent: frozenset[BookieId] = frozenset()) -> None:
        """All that a recovery sends, to its end; silent bookies do not answer."""
        while item := next((i for i in self.under_way if i[0] is core), None):
            action = item[1]
            lost = isinstance(action, SendAdd | SendRead) and action.bookie in silent
            bookie = action.bookie if isinstance(action, SendAdd | SendRead) else None
            self.happens(core, type(action), bookie, fate=IS_LOST if lost else ARRIVES)


def _is(action: Any, kind: type, bookie: BookieId | None, entry_id: int | None) -> bool:
    if not isinstance(action, kind) or (bookie is not None and action.bookie != bookie):
        return False
    if entry_id is None:
        return True
    return entry_id in action.entry_ids if isinstance(action, SendAdd) else bool(action.entry_id == entry_id)


def an_add_arrives_behind_a_recovery() -> None:
    """A bookie that missed the fence says that it has no entry; the add that is on its way to it arrives later.

    With an ack quorum of two of three, recovery needs two answers to its fence, and two that an entry is not there.
    """
    script = Script()
    script.append(b"0")
    script.happens(script.writer, SendAdd, C)  # one acknowledgement; the other two adds are slow
    recovery = script.recover()
    script.happens(recovery, SendRead, B, -1, IS_LOST)
    script.happens(recovery, SendRead, A, -1)
    script.happens(recovery, SendRead, C, -1)
    script.happens(recovery, SendRead, A, 0)
    script.happens(recovery, SendRead, B, 0)  # this read has to fence B
    script.happens(recovery, WriteMetadata)
    assert (script.metadata.state, script.metadata.last_entry_id) == (LedgerState.CLOSED, -1)
    script.happens(script.writer, SendAdd, B)
    script.check()


def an_ack_of_a_bookie_that_was_replaced() -> None:
    """A bookie acknowledges an entry and is replaced before another one does; then the other one is lost."""
    script = Script()
    script.append(b"0")
    script.happens(script.writer, SendAdd, B, 0)
    script.append(b"1")
    script.happens(script.writer, SendAdd, B, 1, IS_LOST)
    script.happens(script.writer, ChooseReplacement)
    script.happens(script.writer, WriteMetadata)
    assert script.metadata.last_ensemble.bookies == (A, D, C)
    script.happens(script.writer, SendAdd, A, 0)  # of the ensemble now: one acknowledgement
    script.check()
    recovery = script.recover()  # the writer is dead, A is lost for ever: one copy less than an ack quorum
    script.goes_on(recovery, silent=frozenset({A}))
    assert script.metadata.state is LedgerState.CLOSED
    script.check()


HISTORIES: dict[str, Callable[[], None]] = {
    "reads-without-fencing": an_add_arrives_behind_a_recovery,
    "acks-of-replaced-bookies-count": an_ack_of_a_bookie_that_was_replaced,
}


@pytest.mark.parametrize("mutation", sorted(HISTORIES))
def test_nothing_confirmed_is_lost(mutation: str) -> None:
    HISTORIES[mutation]()


@pytest.mark.parametrize("mutation", sorted(HISTORIES))
def test_the_break_loses_a_confirmed_entry(mutation: str) -> None:
    with MUTATIONS[mutation](), pytest.raises(AssertionError, match="a confirmed entry was cut off"):
        HISTORIES[mutation]()
