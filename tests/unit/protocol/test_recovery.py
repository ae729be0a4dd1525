"""Recovery, one rule a test."""

from __future__ import annotations

import pytest

from bkctl.codec.wire import Flag
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.status import Status
from bkctl.protocol.actions import (
    Action,
    ChooseReplacement,
    Closed,
    Confirmed,
    Failed,
    FencingCovered,
    ReadMetadata,
    SendAdd,
    SendRead,
    WriteMetadata,
)
from bkctl.protocol.quorum import BAD_ENTRY, TIMED_OUT, UNREACHABLE, Reason
from bkctl.protocol.recovery import RecoveryCore, RecoveryPhase
from tests.unit.protocol.helpers import DIGEST, LEDGER, A, B, C, D, adds, ledger, only, opened, sealed

FENCING = int(Flag.FENCE | Flag.HIGH_PRIORITY)


def fencing(
    metadata: LedgerMetadata | None = None, *, read_ahead: int = 1, fence_only: bool = False, exact_length: bool = True
) -> RecoveryCore:
    """A recovery that has claimed its ledger and sent its fencing reads."""
    core = RecoveryCore(
        LEDGER,
        (metadata or ledger()).in_recovery(),
        5,
        DIGEST,
        read_ahead=read_ahead,
        fence_only=fence_only,
        exact_length=exact_length,
    )
    actions = core.start()
    bookies = core.metadata.last_ensemble.bookies
    assert actions == [SendRead(i, b, -1, FENCING) for i, b in enumerate(bookies)]
    return core


def reading(core: RecoveryCore | None = None) -> RecoveryCore:
    """A recovery that reads from entry 0 on."""
    core = core or fencing()
    core.fencing_answered(0, Status.NO_ENTRY)
    assert core.fencing_answered(1, Status.NO_ENTRY)[:1] == [FencingCovered(core.last_confirmed)]
    return core


def reads(actions: list[Action]) -> list[tuple[BookieId, int, int]]:
    return [(a.bookie, a.entry_id, a.flags) for a in actions if isinstance(a, SendRead)]


# -- claim --------------------------------------------------------------------------------------------------------


def test_an_open_ledger_is_claimed_first() -> None:
    core = RecoveryCore(LEDGER, ledger(), 5, DIGEST)
    write = only(WriteMetadata, core.start())
    assert (write.metadata.state, write.version) == (LedgerState.IN_RECOVERY, 5)
    assert len(reads(core.metadata_written(write.metadata, 6))) == 3
    assert core.version == 6


def test_a_closed_ledger_is_done() -> None:
    core = RecoveryCore(LEDGER, ledger().closed_at(4, 44), 5, DIGEST)
    assert core.start() == [Closed(ledger().closed_at(4, 44), 5, by_us=False)]


def test_a_claim_that_meets_an_ensemble_change_takes_the_new_ensemble() -> None:
    core = RecoveryCore(LEDGER, ledger(), 5, DIGEST)
    core.start()
    changed = ledger().with_ensemble(3, (A, B, D))
    write = only(WriteMetadata, core.metadata_found(changed, 6))
    assert write.version == 6
    assert [b for b, _, _ in reads(core.metadata_written(write.metadata, 7))] == [A, B, D]
    core.fencing_answered(0, Status.NO_ENTRY)
    core.fencing_answered(1, Status.NO_ENTRY)
    assert core.last_confirmed == 2


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (ledger(), RecoveryPhase.CLAIMING),
        (ledger().in_recovery(), RecoveryPhase.FENCING),
        (ledger().closed_at(0, 1), RecoveryPhase.DONE),
    ],
)
def test_a_lost_answer_to_the_claim_is_settled_by_reading(found: LedgerMetadata, phase: RecoveryPhase) -> None:
    core = RecoveryCore(LEDGER, ledger(), 5, DIGEST)
    core.start()
    assert core.metadata_lost() == [ReadMetadata()]
    core.metadata_found(found, 6)
    assert core.phase is phase


# -- fencing ------------------------------------------------------------------------------------------------------


def test_reading_begins_behind_the_best_last_confirmed() -> None:
    core = fencing()
    assert core.fencing_answered(0, Status.OK, sealed(6, 3)) == []
    actions = core.fencing_answered(2, Status.OK, sealed(8, 5))
    assert actions == [FencingCovered(5), SendRead(0, A, 6, FENCING)]
    assert core.fencing_answered(1, Status.OK, sealed(9, 7)) == []  # too late, and not needed


def test_never_in_front_of_the_last_ensemble() -> None:
    core = reading(fencing(ledger(first=10)))
    assert core.last_confirmed == 9


@pytest.mark.parametrize("status", [TIMED_OUT, UNREACHABLE, Status.IO_ERROR, Status.UNKNOWN_LEDGER_STATE])
def test_fencing_that_is_not_covered_fails_and_can_be_tried_again(status: int) -> None:
    core = fencing()
    core.fencing_answered(0, status)
    core.fencing_answered(1, Status.NO_ENTRY)
    assert only(Failed, core.fencing_answered(2, status)).reason is Reason.NOT_COVERED


def test_a_wrong_digest_is_no_answer() -> None:
    core = fencing()
    core.fencing_answered(0, Status.OK, sealed(6, 3)[:-1] + b"!")
    core.fencing_answered(1, Status.NO_ENTRY)
    assert core.survey.answers[0] == BAD_ENTRY
    assert core.phase is RecoveryPhase.FENCING
    core.fencing_answered(2, Status.NO_ENTRY)
    assert core.phase is RecoveryPhase.READING


def test_a_wrong_password_ends_it() -> None:
    assert only(Failed, fencing().fencing_answered(0, Status.UNAUTHORIZED)).reason is Reason.UNAUTHORIZED
    assert only(Failed, reading().read_answered(0, 0, Status.UNAUTHORIZED)).reason is Reason.UNAUTHORIZED


def test_fence_only_leaves_the_ledger_in_recovery() -> None:
    core = fencing(fence_only=True)
    core.fencing_answered(0, Status.OK, sealed(6, 3))
    assert core.fencing_answered(1, Status.NO_ENTRY) == [FencingCovered(3)]
    assert core.settled
    assert core.metadata.state is LedgerState.IN_RECOVERY


# -- reading ------------------------------------------------------------------------------------------------------


def test_reads_fence_and_go_from_replica_to_replica() -> None:
    core = reading()
    assert reads(core.read_answered(0, 0, Status.IO_ERROR)) == [(B, 0, FENCING)]
    assert reads(core.read_answered(1, 0, Status.OK, sealed(0)[:-1] + b"!")) == [(C, 0, FENCING)]
    found = core.read_answered(2, 0, Status.OK, sealed(0))
    assert adds(found) == {0: (A, [0]), 1: (B, [0]), 2: (C, [0])}
    assert reads(found) == [(B, 1, FENCING)]


def test_the_end_needs_enough_explicit_denials() -> None:
    core = reading()
    core.read_answered(0, 0, TIMED_OUT)
    core.read_answered(1, 0, Status.NO_ENTRY)
    write = only(WriteMetadata, core.read_answered(2, 0, Status.NO_LEDGER))
    assert (write.metadata.state, write.metadata.last_entry_id, write.metadata.length) == (LedgerState.CLOSED, -1, 0)
    assert core.metadata_written(write.metadata, 6) == [Closed(write.metadata, 6, by_us=True)]


@pytest.mark.parametrize("status", [TIMED_OUT, UNREACHABLE, Status.UNKNOWN_LEDGER_STATE, Status.IO_ERROR])
def test_what_cannot_be_known_is_never_cut_off(status: int) -> None:
    core = reading()
    core.read_answered(0, 0, status)
    core.read_answered(1, 0, Status.NO_ENTRY)
    assert only(Failed, core.read_answered(2, 0, status)).reason is Reason.UNREADABLE


def test_write_back_is_sealed_anew_with_recovery_flags() -> None:
    core = fencing()
    core.fencing_answered(0, Status.OK, sealed(3, 1, 100))
    core.fencing_answered(1, Status.NO_ENTRY)
    assert core.last_confirmed == 1
    add = next(a for a in core.read_answered(2, 2, Status.OK, sealed(2, 0, 60, b"pay")) if isinstance(a, SendAdd))
    assert add.flags == int(Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY)
    entry = opened(add.entries[0])
    assert (entry.last_confirmed, entry.length, entry.payload) == (1, 60, b"pay")


def test_close_waits_for_the_write_backs() -> None:
    core = reading()
    core.read_answered(0, 0, Status.OK, sealed(0, -1, 5))
    core.read_answered(1, 1, Status.NO_ENTRY)
    assert core.read_answered(2, 1, Status.NO_ENTRY) == []
    assert core.phase is RecoveryPhase.DRAINING
    assert core.acked(0, A, [0]) == []
    actions = core.acked(2, C, [0])
    assert only(Confirmed, actions) == Confirmed(0)
    assert only(WriteMetadata, actions).metadata == ledger().in_recovery().closed_at(0, 5)


def test_read_ahead_takes_results_in_order_and_ends_at_the_first_gap() -> None:
    core = fencing(read_ahead=3)
    core.fencing_answered(0, Status.NO_ENTRY)
    actions = core.fencing_answered(1, Status.NO_ENTRY)
    assert [e for _, e, _ in reads(actions)] == [0, 1, 2]
    assert adds(core.read_answered(2, 2, Status.OK, sealed(2))) == {}
    core.read_answered(1, 1, Status.NO_ENTRY)
    core.read_answered(2, 1, Status.NO_ENTRY)
    found = core.read_answered(0, 0, Status.OK, sealed(0, -1, 5))
    assert adds(found)[0] == (A, [0])
    assert core.phase is RecoveryPhase.DRAINING
    core.acked(0, A, [0])
    assert only(WriteMetadata, core.acked(1, B, [0])).metadata.last_entry_id == 0


def test_a_slow_replica_is_doubled() -> None:
    core = reading()
    assert reads(core.read_slow(0)) == [(B, 0, FENCING)]
    assert core.read_answered(0, 0, Status.NO_ENTRY) == []  # b is still asked
    assert adds(core.read_answered(1, 0, Status.OK, sealed(0)))


# -- replacements -------------------------------------------------------------------------------------------------


def test_bookies_are_replaced_in_memory_and_recorded_with_the_close() -> None:
    core = reading()
    core.read_answered(0, 0, Status.OK, sealed(0))
    assert core.refused(2, C, [0], UNREACHABLE) == [ChooseReplacement(((2, C),), (A, B, C))]
    core.read_answered(1, 1, Status.NO_ENTRY)
    core.read_answered(2, 1, Status.NO_ENTRY)
    core.acked(0, A, [0])
    assert core.acked(1, B, [0]) == []
    actions = core.replaced({2: D})
    assert adds(actions) == {2: (D, [0])}
    write = only(WriteMetadata, actions)
    assert [(e.first_entry_id, e.bookies) for e in write.metadata.ensembles] == [(0, (A, B, D))]


def test_a_replacement_behind_confirmed_entries_makes_a_new_ensemble() -> None:
    core = reading()
    core.read_answered(0, 0, Status.OK, sealed(0))
    core.acked(0, A, [0])
    core.acked(1, B, [0])
    core.read_answered(1, 1, Status.OK, sealed(1, 0, 10))
    core.refused(0, A, [1], UNREACHABLE)
    core.replaced({0: D})
    core.acked(0, D, [1])
    core.acked(1, B, [1])
    core.read_answered(2, 2, Status.NO_ENTRY)
    write = only(WriteMetadata, core.read_answered(0, 2, Status.NO_ENTRY))
    assert [(e.first_entry_id, e.bookies) for e in write.metadata.ensembles] == [(0, (A, B, C)), (1, (D, B, C))]


def test_no_bookie_left_fails_the_recovery() -> None:
    core = reading()
    core.read_answered(0, 0, Status.OK, sealed(0))
    core.refused(2, C, [0], UNREACHABLE)
    assert only(Failed, core.replaced({})).reason is Reason.NOT_ENOUGH_BOOKIES


# -- close --------------------------------------------------------------------------------------------------------


def closing() -> RecoveryCore:
    core = reading()
    core.read_answered(0, 0, Status.NO_ENTRY)
    core.read_answered(1, 0, Status.NO_ENTRY)
    assert core.phase is RecoveryPhase.CLOSING
    return core


@pytest.mark.parametrize("lost", [True, False])
def test_whoever_closed_first_is_right(lost: bool) -> None:
    core = closing()
    if lost:
        assert core.metadata_lost() == [ReadMetadata()]
    found = ledger().closed_at(7, 77)
    assert core.metadata_found(found, 9) == [Closed(found, 9, by_us=False)]


def test_our_own_close_is_recognised_after_a_lost_answer() -> None:
    core = closing()
    core.metadata_lost()
    found = ledger().closed_at(-1, 0)
    assert core.metadata_found(found, 9) == [Closed(found, 9, by_us=True)]


def test_a_close_that_did_not_land_is_repeated() -> None:
    core = closing()
    core.metadata_lost()
    assert only(WriteMetadata, core.metadata_found(ledger().in_recovery(), 5)).version == 5


def test_an_open_ledger_while_closing_is_a_conflict() -> None:
    assert only(Failed, closing().metadata_found(ledger(), 9)).reason is Reason.METADATA_CONFLICT


# -- length -------------------------------------------------------------------------------------------------------


def test_the_length_is_that_of_the_last_entry_though_a_later_one_told_of_it() -> None:
    core = fencing()
    core.fencing_answered(0, Status.OK, sealed(1, 0, 900))
    core.fencing_answered(1, Status.NO_ENTRY)
    core.read_answered(1, 1, Status.NO_ENTRY)
    actions = core.read_answered(2, 1, Status.NO_ENTRY)
    assert reads(actions) == [(A, 0, 0)]
    assert reads(core.read_answered(0, 0, Status.IO_ERROR)) == [(B, 0, 0)]
    assert only(WriteMetadata, core.read_answered(1, 0, Status.OK, sealed(0, -1, 55))).metadata.length == 55


def test_an_empty_last_ensemble_does_not_lose_the_length() -> None:
    core = reading(fencing(ledger(first=10)))
    core.read_answered(1, 10, Status.NO_ENTRY)
    actions = core.read_answered(2, 10, Status.NO_ENTRY)
    assert reads(actions) == [(BookieId("old0"), 9, 0)]
    assert only(WriteMetadata, core.read_answered(0, 9, Status.OK, sealed(9, 8, 123))).metadata.length == 123


def test_where_the_last_entry_cannot_be_read_the_best_guess_stays() -> None:
    core = reading(fencing(ledger(first=10)))
    core.read_answered(1, 10, Status.NO_ENTRY)
    core.read_answered(2, 10, Status.NO_ENTRY)
    core.read_answered(0, 9, UNREACHABLE)
    core.read_answered(1, 9, UNREACHABLE)
    assert only(WriteMetadata, core.read_answered(2, 9, UNREACHABLE)).metadata.length == 0


def test_a_clone_goes_its_own_way() -> None:
    core = reading()
    core.read_answered(0, 0, Status.OK, sealed(0))
    other = core.clone()
    assert other.state() == core.state()
    assert hash(other.state()) == hash(core.state())
    other.acked(0, A, [0])
    other.acked(1, B, [0])
    assert core.last_confirmed == -1
    assert other.last_confirmed == 0
