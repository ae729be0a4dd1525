"""Adds in flight: confirmed in order, sent again to new bookies, dropped at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.wire import Flag
from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.protocol.actions import SendAdd
from bkctl.protocol.adds import AddWindow
from bkctl.protocol.quorum import Quorum
from tests.unit.protocol.helpers import A, B, C, D, E, adds

ABC = (A, B, C)
ENTRIES = [b"0", b"1", b"2"]


def window(
    write: int = 3, ack: int = 2, ensemble: tuple[BookieId, ...] = ABC, last: int = -1, *, delay_change: bool = False
) -> AddWindow:
    return AddWindow(Quorum(len(ensemble), write, ack), ensemble, last, flags=5, delay_change=delay_change)


def test_pushed_entries_are_sent_to_their_write_sets_with_the_flags() -> None:
    adding = window(write=2, last=9)
    actions = adding.push(ENTRIES)
    assert adds(actions) == {0: (A, [11, 12]), 1: (B, [10, 12]), 2: (C, [10, 11])}
    assert {action.flags for action in actions if isinstance(action, SendAdd)} == {5}
    assert (len(adding), adding.last_pushed, adding.last_confirmed, adding.first_entry()) == (3, 12, 9, b"0")


def test_entries_are_confirmed_in_order_and_only_by_advance() -> None:
    adding = window()
    adding.push(ENTRIES)
    adding.ack(0, A, [1, 2])
    adding.ack(1, B, [1])
    assert not adding.advance(), "entry 0 has no acknowledgement"
    adding.ack(0, A, [0])
    adding.ack(2, C, [0])
    assert adding.last_confirmed == -1
    assert adding.advance()
    assert (adding.last_confirmed, len(adding), adding.first_entry()) == (1, 1, b"2")


def test_acknowledgements_of_replaced_bookies_and_of_unknown_entries_are_ignored() -> None:
    adding = window()
    adding.push(ENTRIES)
    adding.ack(0, D, [0])
    adding.ack(1, B, [0, 3, 99, -1])
    adding.ack(1, B, [0])
    assert not adding.advance()
    adding.refuse(0, D, [0], Status.IO_ERROR)
    assert adding.failing == {}


def test_a_refused_entry_makes_its_bookie_failing_and_nothing_more_is_sent_there() -> None:
    adding = window()
    adding.push(ENTRIES)
    adding.refuse(1, B, [0], Status.IO_ERROR)
    assert adding.failing == {1: B}
    assert set(adds(adding.push([b"3"]))) == {0, 2}


def test_a_refusal_of_a_complete_entry_is_delayed_until_the_next_entry() -> None:
    adding = window()
    adding.push(ENTRIES)
    for index, bookie in ((0, A), (1, B)):
        adding.ack(index, bookie, [0])
    adding.refuse(2, C, [0], Status.IO_ERROR)
    assert (adding.failing, adding.delayed) == ({}, {2: C})
    adding.take_delayed()
    assert (adding.failing, adding.delayed) == ({2: C}, {})


def test_delayed_changes_tolerate_refusals_while_the_ack_quorum_can_be_reached() -> None:
    adding = window(delay_change=True)
    adding.push(ENTRIES)
    adding.refuse(0, A, [0], Status.IO_ERROR)
    adding.refuse(1, B, [1], Status.IO_ERROR)
    assert adding.failing == {}
    adding.refuse(1, B, [0], Status.IO_ERROR)
    assert adding.failing == {0: A, 1: B}


def test_a_read_only_bookie_is_replaced_at_once_even_with_delayed_changes() -> None:
    adding = window(delay_change=True)
    adding.push(ENTRIES)
    adding.refuse(0, A, [0], Status.READ_ONLY)
    assert adding.failing == {0: A}


def test_a_new_bookie_gets_every_entry_in_flight_and_loses_the_acknowledgements_of_the_old_one() -> None:
    adding = window()
    adding.push(ENTRIES)
    adding.ack(0, A, [0])
    adding.ack(1, B, [0])
    adding.refuse(1, B, [1], Status.IO_ERROR)
    assert adds(adding.adopt((A, D, C))) == {1: (D, [0, 1, 2])}
    assert adding.failing == {}
    assert not adding.advance(), "entry 0 is incomplete again"
    adding.ack(1, D, [0])
    assert adding.advance()
    assert adding.adopt((A, D, C)) == []


def test_a_retried_bookie_gets_the_entries_that_it_has_not_acknowledged() -> None:
    adding = window()
    adding.push(ENTRIES)
    adding.ack(1, B, [0])
    adding.refuse(1, B, [1], Status.IO_ERROR)
    assert adds(adding.retry([0, 1])) == {1: (B, [1, 2])}
    assert adding.failing == {}


def test_draining_drops_all_entries_in_flight() -> None:
    adding = window()
    assert adding.drain() is None
    adding.push(ENTRIES)
    adding.refuse(1, B, [1], Status.IO_ERROR)
    assert adding.drain() == (0, 2)
    assert (len(adding), adding.failing, adding.last_pushed, adding.first_entry()) == (0, {}, -1, None)


def test_a_clone_shares_no_state() -> None:
    adding = window(delay_change=True)
    adding.push(ENTRIES)
    adding.refuse(0, A, [0], Status.IO_ERROR)
    other = adding.clone()
    assert other.state() == adding.state()
    assert hash(other.state()) == hash(adding.state())
    other.ack(1, B, [0])
    other.ack(2, C, [0])
    assert other.advance()
    other.push([b"3"])
    assert (adding.last_confirmed, len(adding)) == (-1, 3)


@pytest.mark.parametrize("flag", [Flag.NONE, Flag.RECOVERY_ADD])
def test_the_flags_of_every_add_are_those_of_the_window(flag: Flag) -> None:
    adding = AddWindow(Quorum(3, 3, 2), ABC, -1, flags=int(flag))
    sent = [*adding.push(ENTRIES), *adding.adopt((A, B, E))]
    assert {action.flags for action in sent if isinstance(action, SendAdd)} == {int(flag)}


@given(st.permutations([(index, entry) for index in range(3) for entry in range(4)]), st.integers(1, 3))
def test_any_order_of_acknowledgements_confirms_a_prefix(order: list[tuple[int, int]], ack_quorum: int) -> None:
    adding = window(ack=ack_quorum)
    adding.push([b"x"] * 4)
    counts = [0] * 4
    for index, entry in order:
        adding.ack(index, ABC[index], [entry])
        counts[entry] += 1
        adding.advance()
        complete = [count >= ack_quorum for count in counts]
        assert adding.last_confirmed == (complete.index(False) if False in complete else 4) - 1
    assert len(adding) == 0
