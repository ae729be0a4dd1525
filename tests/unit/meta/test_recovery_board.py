"""The notes of auto recovery: requests, results, workers, lost entries; on both stores."""

from __future__ import annotations

import pytest

from bkctl.codec.recovery_notes import (
    FINDINGS_MAX,
    TEXT_MAX,
    AuditorNote,
    CheckName,
    CheckRequest,
    CheckResult,
    Finding,
    LedgerNote,
    LostNote,
    Record,
    SwitchChange,
    SwitchLog,
    WorkerNote,
)
from bkctl.errors import Corrupt, Refused
from bkctl.meta.describe import describe
from bkctl.meta.election import Election
from bkctl.meta.recovery_board import REQUESTS_MAX, RecoveryBoard
from bkctl.meta.store import MetadataStore, WatchEvent
from bkctl.model.ids import BookieId
from tests.zookeeper_fixture import Stores

RESULT = CheckResult(
    CheckName.REPLICAS, "b1:3181", 1, 2, {"ledgers": 7}, (Finding(5, "entry 3 is on no bookie"),), 1, None, ("q_1",)
)
WORKER = WorkerNote("w", "host", 9, 1_000, 2_000, 3, 4, (LedgerNote(5, "copying", 8),))
LOST = LostNote(5, 1, 2, 3, 4, "w", "nobody has it", (7, 8), 2)


@pytest.mark.parametrize(
    "record",
    [RESULT, WORKER, LOST, AuditorNote("a", 1), CheckRequest(CheckName.ALL, "me", 1),
     SwitchLog((SwitchChange(False, 1, "me", "why", 2), SwitchChange(True, 1, "me", "why")))],
    ids=lambda record: type(record).__name__,
)  # fmt: skip
def test_records_come_back(record: object) -> None:
    data = record.encode()  # type: ignore[attr-defined]
    assert type(record).decode(data, source="test") == record  # type: ignore[attr-defined]
    assert type(record).decode(data[:-1] + b',"later":[1]}', source="test") == record  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"check":"x"}', b"\xff", b'{"check":"all","who":1,"at_ms":1}'])
def test_foreign_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="CheckRequest"):
        CheckRequest.decode(data, source="test")


def test_a_result_is_small_whatever_was_found() -> None:
    findings = tuple(Finding(i, "x" * 10_000) for i in range(FINDINGS_MAX))
    result = CheckResult(CheckName.ALL, "y" * 10_000, 1, 2, {}, findings, 10**6, "z" * 10_000)
    assert len(result.encode()) < FINDINGS_MAX * (TEXT_MAX + 60) + 2_000


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


@pytest.mark.parametrize(
    ("place", "kind", "record"),
    [
        ("bkctl/results/replicas", "check_result", RESULT),
        ("bkctl/workers/b1:3181_1f", "worker_note", WORKER),
        ("bkctl/lost/5", "lost_note", LOST),
        ("bkctl/requests/q_0000000001", "check_request", CheckRequest(CheckName.ALL, "me", 1)),
        ("bkctl/auditor", "auditor_note", AuditorNote("a", 1)),
        ("bkctl/switch", "switch_log", SwitchLog()),
        ("disable", "switched_off", SwitchChange(False, 1, "me", "why")),
    ],
)
def test_notes_are_known_by_their_place(place: str, kind: str, record: Record) -> None:
    assert describe("/ledgers", f"/ledgers/underreplication/{place}", record.encode()) == (kind, record)


def test_javas_disable_is_empty() -> None:
    assert describe("/ledgers", "/ledgers/underreplication/disable", b"") == ("switched_off", None)
