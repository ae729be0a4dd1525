"""Small sizes, visited whole; and both known defects, found by the shortest history that loses data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.protocol.recovery import RecoveryCore
from tests.model.explore import Broken, State, explore, play
from tests.model.sizes import BELOW_LAST_FRAGMENT, ENTRY_ON_ONE_BOOKIE, SIZES, UNFENCED_READS
from tests.model.system import Size, World

pytestmark = pytest.mark.slow

MINUTES_MAX = 10  # a bound for a machine that has other work; it takes seconds on a quiet one


def search(size: Size, lines: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
    world = World(size)
    return explore(world, start=play(world, lines) if lines else None, seconds_max=MINUTES_MAX * 60)


@pytest.mark.parametrize("name", ["order", "race"])
def test_every_state_of_a_small_size_keeps_the_rules(name: str) -> None:
    result = search(SIZES[name][1])
    print(result)
    assert result.broken is None, str(result)
    assert result.complete
    assert result.states > 50_000


def test_reads_that_do_not_fence_lose_an_acknowledged_entry() -> None:
    result = search(UNFENCED_READS)
    print(result)
    assert result.broken is not None
    assert result.broken.rule == "NoDivergenceBetweenClientAndMetaData"
    assert len(result.history) == 17, "the shortest history"
    assert any("read of entry 0' of recoverer 1: no_" in line for line in result.history)
    assert search(replace(UNFENCED_READS, coarse=True, reduced=True)).broken is not None
    sound = search(replace(UNFENCED_READS, coarse=True, reduced=True, recovery_class=RecoveryCore))
    assert sound.broken is None
    assert sound.complete


def test_a_recovery_that_starts_below_the_last_fragment_leaves_entries_on_too_few_bookies() -> None:
    result = search(BELOW_LAST_FRAGMENT, ENTRY_ON_ONE_BOOKIE)
    print(result)
    assert result.broken is not None
    assert result.broken.rule == "AllCommittedEntriesReachAckQuorum"
    assert any("recovery add of entry 0" in line for line in result.history), "an entry of an earlier fragment"
    sound = search(replace(BELOW_LAST_FRAGMENT, recovery_class=RecoveryCore), ENTRY_ON_ONE_BOOKIE)
    assert sound.broken is None, str(sound)
    assert sound.complete


def test_the_reduction_finds_what_the_whole_search_finds() -> None:
    whole = search(replace(SIZES["order"][1], ensemble_size=2, write_quorum_size=2, ack_quorum_size=2, bookies=2))
    reduced = search(
        replace(SIZES["order"][1], ensemble_size=2, write_quorum_size=2, ack_quorum_size=2, bookies=2, reduced=True)
    )
    assert whole.broken is None
    assert reduced.broken is None
    assert reduced.complete
    assert reduced.states < whole.states


class Counter:
    """A system of three counters that must not all reach 2."""

    def initial(self) -> State:
        return (0, 0, 0)

    def steps(self, state: State):  # type: ignore[no-untyped-def]
        for i in range(3):
            if state[i] < 2:
                yield (i,), (*state[:i], state[i] + 1, *state[i + 1 :])

    def check(self, state: State) -> None:
        if state == (2, 2, 2):
            raise Broken("NotAll", "all reached 2")

    def words(self, state: State, label: tuple[int, ...]) -> str:
        return f"{'abc'[label[0]]} from {state[label[0]]}"


def test_the_search_itself() -> None:
    result = explore(Counter())
    assert result.states == 27
    assert len(result.history) == 6
    assert str(result).endswith("=> NotAll: all reached 2")
    assert explore(Counter(), seconds_max=0.0).complete is False
    state = play(Counter(), ["a from 0", "a from 1"])
    assert state == (2, 0, 0)
    assert len(explore(Counter(), start=state).history) == 4
