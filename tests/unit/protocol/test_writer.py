"""The writer, one rule a test; tables follow the order of the protocol's description."""

from __future__ import annotations

import pytest

from bkctl.errors import LedgerClosed, LedgerFenced, NotEnoughBookies
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.status import Status
from bkctl.protocol.actions import ChooseReplacement, Closed, Confirmed, Dropped, Failed, ReadMetadata, WriteMetadata
from bkctl.protocol.quorum import TIMED_OUT, UNREACHABLE, Reason
from bkctl.protocol.writer import WriterCore, WriterPhase
from tests.unit.protocol.helpers import DIGEST, LEDGER, A, B, C, D, E, F, adds, ids, ledger, only, opened


def writer(metadata: LedgerMetadata | None = None, *, delay_change: bool = False) -> WriterCore:
    return WriterCore(LEDGER, metadata or ledger(), 0, DIGEST, delay_change=delay_change)


def test_each_entry_goes_to_its_write_set_with_lac_and_length() -> None:
    core = writer(ledger(ids("a", "b", "c", "d", "e"), 3, 2))
    actions = core.append_many([b"x" * (i + 1) for i in range(5)])
    assert adds(actions) == {
        0: (A, [0, 3, 4]),
        1: (B, [0, 1, 4]),
        2: (C, [0, 1, 2]),
        3: (D, [1, 2, 3]),
        4: (E, [2, 3, 4]),
    }
    entry = opened(next(a for a in actions if a.index == 3).entries[1])  # type: ignore[union-attr]
    assert (entry.entry_id, entry.last_confirmed, entry.length, entry.payload) == (2, -1, 6, b"xxx")


def test_entries_are_confirmed_in_order_only() -> None:
    core = writer()
    core.append_many([b"0", b"1", b"2"])
    assert core.acked(0, A, [1, 2]) == []
    assert core.acked(1, B, [1, 2]) == []
    assert core.acked(0, A, [0]) == []
    assert core.acked(2, C, [0]) == [Confirmed(2)]
    assert opened(core.append_many([b"3"])[0].entries[0]).last_confirmed == 2  # type: ignore[union-attr]


def test_answers_that_come_twice_count_once() -> None:
    core = writer()
    core.append_many([b"0"])
    assert core.acked(0, A, [0, 0]) == []
    assert core.answered(0, A, 0, Status.OK) == []
    assert core.answered(1, B, 0, Status.OK) == [Confirmed(0)]
    assert core.answered(1, B, 0, Status.OK) == []
    assert core.acked(1, B, [5]) == []


@pytest.mark.parametrize(
    "status", [UNREACHABLE, TIMED_OUT, Status.IO_ERROR, Status.READ_ONLY, Status.TOO_MANY_REQUESTS, Status.NO_LEDGER]
)
def test_a_failed_bookie_is_replaced_from_behind_the_last_confirmed(status: int) -> None:
    core = writer()
    core.append_many([b"0", b"1", b"2"])
    core.acked(0, A, [0])
    core.acked(1, B, [0])
    choose = core.refused(2, C, [1], status)
    assert choose == [ChooseReplacement(((2, C),), (A, B, C))]
    assert core.acked(0, A, [1]) == core.acked(1, B, [1]) == []  # nothing is confirmed during the change
    write = only(WriteMetadata, core.replaced({2: D}))
    assert [(e.first_entry_id, e.bookies) for e in write.metadata.ensembles] == [(0, (A, B, C)), (1, (A, B, D))]
    actions = core.metadata_written(write.metadata, 1)
    assert adds(actions) == {2: (D, [1, 2])}
    assert only(Confirmed, actions) == Confirmed(1)


def test_a_change_at_the_same_entry_replaces_the_ensemble() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(0, A, [0], UNREACHABLE)
    write = only(WriteMetadata, core.replaced({0: D}))
    assert [(e.first_entry_id, e.bookies) for e in write.metadata.ensembles] == [(0, (D, B, C))]


def test_answers_of_a_replaced_bookie_are_ignored_and_its_acks_forgotten() -> None:
    core = writer()
    core.append_many([b"0", b"1"])
    core.acked(0, A, [1])
    core.acked(1, B, [1])  # entry 1 is complete, entry 0 is not
    core.refused(0, A, [0], TIMED_OUT)
    write = only(WriteMetadata, core.replaced({0: D}))
    assert adds(core.metadata_written(write.metadata, 1)) == {0: (D, [0, 1])}
    assert core.acked(0, A, [0]) == []  # too late
    assert core.refused(0, A, [0], Status.FENCED) == []  # not ours any more
    assert core.acked(1, B, [0]) == []
    assert core.acked(2, C, [0]) == [Confirmed(0)]
    assert core.acked(0, D, [0, 1]) == [Confirmed(1)]


def test_entries_appended_during_a_change_reach_the_new_bookie() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    assert adds(core.append_many([b"1"])) == {0: (A, [1]), 1: (B, [1])}
    write = only(WriteMetadata, core.replaced({2: D}))
    assert adds(core.append_many([b"2"])) == {0: (A, [2]), 1: (B, [2])}
    assert adds(core.metadata_written(write.metadata, 1)) == {2: (D, [0, 1, 2])}


def test_failures_during_a_change_make_another_round() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    write = only(WriteMetadata, core.replaced({2: D}))
    assert core.refused(0, A, [0], UNREACHABLE) == []
    actions = core.metadata_written(write.metadata, 1)
    assert only(ChooseReplacement, actions) == ChooseReplacement(((0, A),), (A, B, D))
    again = only(WriteMetadata, core.replaced({0: E}))
    assert again.version == 1
    assert again.metadata.last_ensemble.bookies == (E, B, D)


def test_a_refusal_after_completion_waits_for_the_next_entry() -> None:
    core = writer()
    core.append_many([b"0"])
    core.acked(0, A, [0])
    core.acked(1, B, [0])
    assert core.refused(2, C, [0], TIMED_OUT) == []
    actions = core.append_many([b"1"])
    assert only(ChooseReplacement, actions).failed == ((2, C),)
    assert adds(actions) == {0: (A, [1]), 1: (B, [1])}


def test_partly_replaced_the_other_bookie_is_asked_again() -> None:
    core = writer(ledger((A, B, C, D, E), 5, 3))
    core.append_many([b"0", b"1"])
    core.refused(3, D, [0], UNREACHABLE)
    core.acked(4, E, [1])
    write = only(WriteMetadata, core.replaced({3: F}))
    core.refused(4, E, [0], UNREACHABLE)
    actions = core.metadata_written(write.metadata, 1)
    assert only(ChooseReplacement, actions).failed == ((4, E),)
    assert isinstance(core.replaced({})[0], Failed)


def test_no_bookie_left_ends_the_writer_and_closes() -> None:
    core = writer()
    core.append_many([b"00", b"1"])
    core.acked(0, A, [0])
    core.acked(1, B, [0])
    core.refused(2, C, [1], UNREACHABLE)
    actions = core.replaced({})
    assert actions[:2] == [Failed(Reason.NOT_ENOUGH_BOOKIES, "c"), Dropped(1, 1, Reason.NOT_ENOUGH_BOOKIES)]
    write = only(WriteMetadata, actions)
    assert (write.metadata.last_entry_id, write.metadata.length) == (0, 2)
    assert isinstance(core.metadata_written(write.metadata, 1)[0], Closed)
    with pytest.raises(NotEnoughBookies):
        core.append_many([b"2"])


@pytest.mark.parametrize("status", [Status.FENCED, Status.UNAUTHORIZED])
def test_a_fenced_writer_stops_and_tries_to_close(status: Status) -> None:
    core = writer()
    core.append_many([b"0"])
    actions = core.refused(1, B, [0], status)
    assert only(Failed, actions).reason in (Reason.FENCED, Reason.UNAUTHORIZED)
    write = only(WriteMetadata, actions)
    recovered = write.metadata.in_recovery()
    again = only(WriteMetadata, core.metadata_found(recovered, 4))
    assert (again.version, again.metadata.state) == (4, LedgerState.CLOSED)
    assert core.metadata_found(recovered.closed_at(5, 5), 5) == []  # recovered with another end: nothing more to say
    assert core.phase is WriterPhase.FAILED


@pytest.mark.parametrize(
    ("state", "reason", "error"),
    [
        (LedgerState.IN_RECOVERY, Reason.FENCED, LedgerFenced),
        (LedgerState.CLOSED, Reason.CLOSED, LedgerClosed),
    ],
)
def test_a_change_that_meets_a_recovery_ends_the_writer_without_a_close(
    state: LedgerState, reason: Reason, error: type[Exception]
) -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    core.replaced({2: D})
    found = ledger().in_recovery() if state is LedgerState.IN_RECOVERY else ledger().closed_at(-1, 0)
    actions = core.metadata_found(found, 9)
    assert actions == [Failed(reason), Dropped(0, 0, reason)]
    assert core.phase is WriterPhase.FAILED
    with pytest.raises(error):
        core.append_many([b"1"])


def test_a_change_that_meets_another_change_goes_over_to_it() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    core.replaced({2: D})
    renamed = ledger((E, B, C))
    actions = core.metadata_found(renamed, 3)
    assert adds(actions) == {0: (E, [0])}
    assert only(ChooseReplacement, actions) == ChooseReplacement(((2, C),), (E, B, C))
    assert only(WriteMetadata, core.replaced({2: D})).version == 3


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_to_a_change_is_settled_by_reading(landed: bool) -> None:
    core = writer()
    core.append_many([b"0"])
    core.acked(0, A, [0])
    core.refused(2, C, [0], UNREACHABLE)
    write = only(WriteMetadata, core.replaced({2: D}))
    assert core.metadata_lost() == [ReadMetadata()]
    assert core.acked(1, B, [0]) == []
    actions = core.metadata_found(write.metadata, 1) if landed else core.metadata_found(core.metadata, 0)
    if landed:
        assert adds(actions) == {2: (D, [0])}
        assert only(Confirmed, actions) == Confirmed(0)
    else:
        assert only(ChooseReplacement, actions).failed == ((2, C),)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (ledger(), WriterPhase.CLOSING),
        (ledger().in_recovery(), WriterPhase.CLOSING),
        (ledger().closed_at(0, 2), WriterPhase.CLOSED),
        (ledger().closed_at(0, 3), WriterPhase.FAILED),
        (ledger().closed_at(1, 2), WriterPhase.FAILED),
    ],
)
def test_close_conflicts(found: LedgerMetadata, phase: WriterPhase, lost: bool) -> None:
    core = writer()
    core.append_many([b"ab", b"c"])
    core.acked(0, A, [0])
    core.acked(1, B, [0])
    actions = core.close()
    assert only(Dropped, actions) == Dropped(1, 1, Reason.CLOSED)
    assert (only(WriteMetadata, actions).metadata.last_entry_id, only(WriteMetadata, actions).metadata.length) == (0, 2)
    if lost:
        assert core.metadata_lost() == [ReadMetadata()]
    actions = core.metadata_found(found, 2)
    assert core.phase is phase
    if phase is WriterPhase.CLOSING:
        assert only(WriteMetadata, actions).version == 2
    if phase is WriterPhase.FAILED:
        assert only(Failed, actions).reason is Reason.METADATA_CONFLICT


def test_close_waits_for_the_open_change() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    write = only(WriteMetadata, core.replaced({2: D}))
    assert core.close() == [Dropped(0, 0, Reason.CLOSED)]
    with pytest.raises(LedgerClosed):
        core.append_many([b"1"])
    closing = only(WriteMetadata, core.metadata_written(write.metadata, 1))
    assert closing.version == 1
    assert closing.metadata.last_entry_id == -1
    assert closing.metadata.length == 0
    assert core.close() == []


def test_close_does_not_wait_for_a_choice() -> None:
    core = writer()
    core.append_many([b"0"])
    core.refused(2, C, [0], UNREACHABLE)
    only(WriteMetadata, core.close())
    assert core.replaced({2: D}) == []


def test_delayed_change_bears_as_many_failures_as_the_quorum_allows() -> None:
    core = writer(delay_change=True)
    core.append_many([b"0"])
    assert core.refused(2, C, [0], TIMED_OUT) == []
    actions = core.refused(1, B, [0], TIMED_OUT)
    assert only(ChooseReplacement, actions).failed == ((1, B), (2, C))
    core = writer(delay_change=True)
    core.append_many([b"0"])
    assert only(ChooseReplacement, core.refused(2, C, [0], Status.READ_ONLY)).failed == ((2, C),)


def test_store_failure_and_quorum_timeout_end_the_writer() -> None:
    core = writer()
    core.append_many([b"0"])
    assert only(Failed, core.expired()).reason is Reason.QUORUM_TIMEOUT
    assert core.metadata_failed("gone") == []  # the first reason stays
    assert core.phase is WriterPhase.FAILED


def test_a_clone_goes_its_own_way() -> None:
    core = writer()
    core.append_many([b"0"])
    other = core.clone()
    assert other.state() == core.state()
    assert hash(other.state()) == hash(core.state())
    other.acked(0, A, [0])
    assert other.state() != core.state()
    other.append_many([b"1"])
    assert core.last_pushed == 0


@pytest.mark.parametrize(("ensemble", "write_quorum"), [((A, B, C), 3), ((A, B, C, D, E), 4)])
def test_ack_quorum_3_confirms_an_entry_at_its_third_acknowledgement(
    ensemble: tuple[BookieId, ...], write_quorum: int
) -> None:
    core = writer(ledger(ensemble, write_quorum, ack_quorum=3))
    core.append_many([b"0", b"1"])
    assert core.acked(0, A, [0]) == core.acked(1, B, [0, 1]) == []
    assert core.acked(2, C, [0]) == [Confirmed(0)]
    assert core.acked(2, C, [1]) == []
    last = (0, A) if write_quorum == 3 else (4, E)  # of entry 1's write set
    assert core.acked(*last, [1]) == [Confirmed(1)]


def test_ack_quorum_3_of_3_waits_for_the_replacement_of_a_failed_bookie() -> None:
    core = writer(ledger(ack_quorum=3))
    core.append_many([b"0"])
    assert core.acked(0, A, [0]) == core.acked(1, B, [0]) == []
    assert only(ChooseReplacement, core.refused(2, C, [0], UNREACHABLE)).failed == ((2, C),)
    write = only(WriteMetadata, core.replaced({2: D}))
    assert adds(core.metadata_written(write.metadata, 1)) == {2: (D, [0])}
    assert core.acked(2, D, [0]) == [Confirmed(0)]
