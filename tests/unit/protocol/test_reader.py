"""Which replica next, and what a set of answers amounts to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.model.status import Status
from bkctl.protocol.quorum import BAD_ENTRY, TIMED_OUT, UNREACHABLE, Quorum
from bkctl.protocol.reader import ReplicaRead, Survey, Verdict

THREE = Quorum(3, 3, 2)
UNSURE = [UNREACHABLE, TIMED_OUT, BAD_ENTRY, Status.IO_ERROR, Status.UNKNOWN_LEDGER_STATE, Status.TOO_MANY_REQUESTS]


def test_replicas_are_asked_in_write_set_order() -> None:
    read = ReplicaRead(Quorum(5, 3, 2), 4)
    assert [read.ask() for _ in range(4)] == [4, 0, 1, None]


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([], Verdict.OPEN),
        ([Status.NO_ENTRY], Verdict.OPEN),
        ([Status.NO_ENTRY, Status.NO_LEDGER], Verdict.ABSENT),
        ([Status.NO_ENTRY, Status.OK], Verdict.FOUND),
        ([TIMED_OUT, Status.NO_ENTRY], Verdict.OPEN),
        ([TIMED_OUT, Status.NO_ENTRY, Status.NO_ENTRY], Verdict.ABSENT),
        ([TIMED_OUT, Status.NO_ENTRY, BAD_ENTRY], Verdict.UNKNOWN),
        ([Status.UNKNOWN_LEDGER_STATE, Status.NO_ENTRY, UNREACHABLE], Verdict.UNKNOWN),
    ],
)
def test_verdicts(answers: list[int], verdict: Verdict) -> None:
    read = ReplicaRead(THREE, 0)
    for status in answers:
        index = read.ask()
        assert index is not None
        read.answer(index, status)
    assert read.verdict is verdict


@given(st.lists(st.sampled_from(UNSURE), min_size=3, max_size=3), st.permutations(range(3)))
def test_answers_that_are_not_sure_never_make_an_entry_absent(statuses: list[int], order: list[int]) -> None:
    read = ReplicaRead(THREE, 0)
    while read.ask() is not None:
        pass
    for index in order:
        read.answer(index, statuses[index])
    assert read.verdict is Verdict.UNKNOWN


def test_unasked_and_repeated_answers_do_not_count() -> None:
    read = ReplicaRead(THREE, 0)
    read.ask()
    read.answer(1, Status.NO_ENTRY)
    read.answer(0, Status.NO_ENTRY)
    read.answer(0, Status.OK)
    assert read.answers == {0: Status.NO_ENTRY}
    assert not read.waiting


@pytest.mark.parametrize(
    ("statuses", "telling"),
    [
        ([], UNREACHABLE),
        ([Status.NO_ENTRY, TIMED_OUT], TIMED_OUT),
        ([UNREACHABLE, Status.NO_ENTRY], UNREACHABLE),
        ([UNREACHABLE, Status.IO_ERROR, TIMED_OUT], Status.IO_ERROR),
        ([BAD_ENTRY, Status.IO_ERROR], BAD_ENTRY),
        ([Status.NO_LEDGER, Status.NO_ENTRY], Status.NO_ENTRY),
    ],
)
def test_the_most_telling_answer(statuses: list[int], telling: int) -> None:
    read = ReplicaRead(THREE, 0)
    for index, status in enumerate(statuses):
        read.ask()
        read.answer(index, status)
    assert read.telling_status() == telling


def test_a_survey_ends_at_coverage_and_keeps_the_best() -> None:
    survey = Survey(THREE)
    survey.answer(0, Status.OK, (3, 30, 4))
    assert not survey.covered
    survey.answer(1, BAD_ENTRY)
    assert not survey.covered
    survey.answer(2, Status.OK, (5, 50, 6))
    assert survey.covered
    assert survey.best == (5, 50, 6)
    assert survey.exhausted


def test_a_survey_of_silence_is_not_covered() -> None:
    survey = Survey(Quorum(2, 2, 2))
    survey.answer(0, TIMED_OUT)
    survey.answer(1, UNREACHABLE)
    assert survey.exhausted
    assert not survey.covered
