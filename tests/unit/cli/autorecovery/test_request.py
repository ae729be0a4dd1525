"""Requests to the auditor: when they are accepted, and how the command waits for the result."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.cli.autorecovery import _request
from bkctl.codec.recovery_notes import AuditorNote, CheckName, CheckRequest, CheckResult
from bkctl.errors import Refused, Unavailable
from bkctl.meta.election import Election
from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId
from tests.unit.cli.autorecovery.recovery_tree import add_auditor, on

REQUEST = CheckRequest(CheckName.REPLICAS, "ann@host", 1)
RESULT = CheckResult(CheckName.REPLICAS, "b9:3181", 1, 2)


async def check_can_ask(queue: Underreplication) -> None:
    await _request.check_can_ask(queue, RecoveryBoard(queue.store, queue.root))


def test_an_auditor_of_bkctl_accepts_requests(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=True)
    on(tree, check_can_ask)
    on(tree, lambda queue: queue.disable())
    with pytest.raises(Refused, match="auto recovery is disabled"):
        on(tree, check_can_ask)


def test_a_request_without_an_auditor_is_unavailable(tree: MemoryTree) -> None:
    with pytest.raises(Unavailable, match="no auditor is running"):
        on(tree, check_can_ask)


def test_a_request_to_a_java_auditor_is_refused_and_names_it(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=False)
    with pytest.raises(Refused, match="auditor b9:3181 is not a bkctl process"):
        on(tree, check_can_ask)


async def elected(queue: Underreplication) -> RecoveryBoard:
    """The notes of a cluster whose auditor accepts requests in this session."""
    await Election(queue.store, queue.root).win(BookieId("b9:3181"))
    board = RecoveryBoard(queue.store, queue.root)
    await board.announce(AuditorNote("b9:3181", 1))
    return board


def test_the_result_is_returned_once_the_request_is_answered(tree: MemoryTree) -> None:
    async def work(queue: Underreplication) -> CheckResult:
        board = await elected(queue)
        name = await board.ask(REQUEST)
        waiting = asyncio.ensure_future(_request.wait_for(board, CheckName.REPLICAS, name))
        await board.keep(RESULT)
        assert not waiting.done()
        await board.answered(name)
        return await waiting

    assert on(tree, work) == RESULT


def test_waiting_fails_when_no_auditor_of_bkctl_is_left(tree: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_request, "LOOK_S", 0.0)

    async def work(queue: Underreplication) -> None:
        board = RecoveryBoard(queue.store, queue.root)
        name = await board.ask(REQUEST)
        try:
            await _request.wait_for(board, CheckName.REPLICAS, name)
        finally:
            assert await board.waits(name)

    with pytest.raises(Unavailable, match="the auditor has stopped") as caught:
        on(tree, work)
    assert "stays queued" in str(caught.value.hint)


def test_a_request_that_is_answered_without_a_result_is_unavailable(tree: MemoryTree) -> None:
    async def work(queue: Underreplication) -> None:
        board = await elected(queue)
        await _request.wait_for(board, CheckName.REPLICAS, "q_0000000099")

    with pytest.raises(Unavailable, match="without a result"):
        on(tree, work)
