"""The notes of auto recovery: requests, results, workers, lost entries; on both stores."""

from __future__ import annotations

import pytest

from bkctl.codec.recovery_notes import (
    AuditorNote,
    CheckName,
    CheckRequest,
)
from bkctl.errors import Refused
from bkctl.meta.election import Election
from bkctl.meta.recovery_board import REQUESTS_MAX, RecoveryBoard
from bkctl.meta.store import MetadataStore, WatchEvent
from bkctl.model.ids import BookieId
from tests.unit.codec.recovery_records import LOST, RESULT, WORKER
from tests.zookeeper_fixture import Stores


def test_requests_and_results(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        board = RecoveryBoard(store, root)
        assert await board.pending() == {}
        fired: list[WatchEvent] = []
        await board.watch_requests(fired.append)
        request = CheckRequest(CheckName.ALL, "me", 5)
        name = await board.ask(request)
        await store.create(f"{board.base}/requests/q_foreign", b"?", parents=True)
        assert await board.pending() == {name: request}
        assert await board.waits(name)
        await board.answered(name)
        await board.answered(name)
        assert not await board.waits(name)
        assert await board.result(CheckName.REPLICAS) is None
        await board.keep(RESULT)
        await board.keep(RESULT)
        assert await board.result(CheckName.REPLICAS) == RESULT
        assert fired
        for _ in range(REQUESTS_MAX - 1):
            await board.ask(request)
        with pytest.raises(Refused, match="already queued"):
            await board.ask(request)

    stores.run(scenario)


def test_only_the_elected_auditor_takes_requests(stores: Stores) -> None:
    async def scenario(ours: MetadataStore, javas: MetadataStore, root: str) -> None:
        board = RecoveryBoard(ours, root)
        assert not await board.auditor_listens()
        await Election(javas, root).win(BookieId("java:1"))
        await board.announce(AuditorNote("ours:1", 1))  # one that has lost the election, and does not know yet
        assert not await board.auditor_listens()
        await Election(javas, root).resign()
        await Election(ours, root).win(BookieId("ours:1"))
        assert await board.auditor_listens()
        await board.announce(AuditorNote("ours:1", 2))
        await board.withdraw()
        assert not await board.auditor_listens()

    stores.run(scenario, sessions=2)


def test_workers_go_with_their_session(stores: Stores) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore, root: str) -> None:
        board = RecoveryBoard(one, root)
        await RecoveryBoard(two, root).publish("w", WORKER)
        await board.publish("v", WORKER)
        assert await board.workers() == {one.session_id: WORKER, two.session_id: WORKER}
        await RecoveryBoard(two, root).unpublish("v")  # not its own
        await board.publish("w", WORKER)  # the name of a process that died a moment ago
        assert set(await board.workers()) == {one.session_id}
        await board.unpublish("w")
        await board.unpublish("v")
        assert await board.workers() == {}

    stores.run(scenario, sessions=2)


def test_lost_entries(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        board = RecoveryBoard(store, root)
        assert await board.lost_ids() == set()
        await board.note_lost(LOST)
        await board.note_lost(LOST)
        assert await board.lost_ids() == {5}
        assert await board.lost([4, 5]) == {5: LOST}
        assert await board.forget_lost(5)
        assert not await board.forget_lost(5)

    stores.run(scenario)
