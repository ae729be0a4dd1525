"""Markers, locks, the switch, the delay and the election, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.underreplication import Marker
from bkctl.errors import BadBytes, Corrupt, Refused, Unavailable
from bkctl.meta.election import Election
from bkctl.meta.store import MetadataStore, WatchEvent
from bkctl.meta.underreplication import Check, LockInfo, Underreplication
from bkctl.model.ids import BookieId
from tests.zookeeper_fixture import Stores

A, B, C = (BookieId(f"10.0.0.{i}:3181") for i in (1, 2, 3))


class Clock:
    """Tells what it is told to tell."""

    def __init__(self) -> None:
        self.time_ms = 1000

    def now_ms(self) -> int:
        return self.time_ms


def test_marks_are_merged(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        clock = Clock()
        under = Underreplication(store, root, clock)
        assert await under.mark(5, [B, A])
        assert await under.marker(5) == (Marker((B, A), 1000), 0)
        clock.time_ms = 2000
        assert not await under.mark(5, [A])
        assert await under.marker(5) == (Marker((B, A), 1000), 0)
        assert await under.mark(5, [A, C, C])
        assert await under.marker(5) == (Marker((B, A, C), 2000), 1)
        assert await under.mark(2**40, [])
        assert await under.marker(2**40) == (Marker((), 2000), 0)
        silent = Underreplication(store, root, clock, mark_time=False)
        assert await silent.mark(6, [A])
        assert await under.marker(6) == (Marker((A,), None), 0)
        assert await under.marker(7) is None
        assert [found async for found in under.markers()] == [[5, 6], [2**40]]
        await store.overwrite(under.marker_path(6), b"foreign")
        with pytest.raises(BadBytes, match="urL0000000006"):
            await under.mark(6, [B])

    stores.run(scenario)


def test_a_marker_whose_name_is_written_in_another_way_is_found(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        await under.mark(5, [A])
        ours = under.marker_path(9)
        await store.create(ours.replace("urL0000000009", "urL9"), b"", parents=True)
        await store.create(under.marker_path(7).replace("/urL0000000007", ""), b"", parents=True)  # empty by now
        assert [found async for found in under.markers()] == [[5, 9]]

    stores.run(scenario)


def test_auditors_that_mark_the_same_ledger_converge(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        lost = [BookieId(f"b{i}:1") for i in range(8)]
        auditors = [Underreplication(store, root, Clock()) for store in (a, b)]
        await asyncio.gather(*(auditors[i % 2].mark(1, [bookie]) for i, bookie in enumerate(lost)))
        found = await auditors[0].marker(1)
        assert found is not None
        assert sorted(found[0].replicas) == lost

    stores.run(scenario, sessions=2)


def test_a_ledger_is_repaired_under_a_lock(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        under, theirs = Underreplication(mine, root, Clock()), Underreplication(other, root, Clock())
        await under.ensure()
        assert await under.lock(1, "host") is None  # not marked
        await under.mark(1, [A])
        lock = await under.lock(1, "host")
        assert lock is not None
        assert (await mine.get(under.lock_path(1))).data == b'bookieId: "host"\n'
        assert await theirs.locks() == [LockInfo(lock.ledger_id, "host", mine.session_id)]
        assert await theirs.lock(1, "other") is None
        assert await under.lock(1, "host") == lock  # an answer was lost: it is ours
        assert await under.complete(lock)
        assert await under.marker(1) is None
        assert await mine.children(f"{under.base}/ledgers") == []
        assert await theirs.locks() == []

    stores.run(scenario, sessions=2)


def test_a_mark_that_comes_during_the_repair_is_not_lost(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        await under.mark(1, [A])
        lock = await under.lock(1, "host")
        assert lock is not None
        await under.mark(1, [B])
        assert not await under.complete(lock)
        found = await under.marker(1)
        assert found is not None
        assert found[0].replicas == (A, B)
        assert await under.locks() == []
        again = await under.lock(1, "host")
        assert again is not None
        await store.delete_any(under.marker_path(1))  # somebody else repaired it
        assert await under.complete(again)

    stores.run(scenario)


def test_neighbours_keep_their_directories(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        await under.mark(0x10001, [A])
        await under.mark(0x10002, [A])
        lock = await under.lock(0x10001, "host")
        assert lock is not None
        assert await under.complete(lock)
        assert await store.children(f"{under.base}/ledgers/0000/0000/0001") == ["0002"]

    stores.run(scenario)


def test_a_lock_lost_with_its_session_releases_nothing(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        under, theirs = Underreplication(mine, root, Clock()), Underreplication(other, root, Clock())
        await under.mark(1, [A])
        lock = await under.lock(1, "host")
        assert lock is not None
        connected = asyncio.Event()
        mine.on_session(lambda event: connected.set() if event.value == "connected" else None)
        await stores.expire(mine)
        await connected.wait()
        taken = await theirs.lock(1, "other")
        assert taken is not None
        await under.release(lock)
        assert not await under.complete(lock)
        assert [info.holder for info in await theirs.locks()] == ["other"]
        assert await theirs.complete(taken)

    stores.run(scenario, sessions=2)


def test_the_switch(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        under, theirs = Underreplication(mine, root, Clock()), Underreplication(other, root, Clock())
        assert await under.enabled()
        await under.wait_enabled()
        assert await theirs.disable()
        assert not await theirs.disable()
        await mine.sync(root)
        waiting = asyncio.create_task(under.wait_enabled())
        assert not await under.enabled()
        assert (await mine.get(f"{under.base}/disable")).data == b""
        assert await theirs.enable()
        assert not await theirs.enable()
        await waiting

    stores.run(scenario, sessions=2)


def test_the_delay_and_how_an_audit_is_triggered(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        assert await under.delay_s() is None
        await under.init_delay(30)
        await under.init_delay(60)  # the stored one wins
        assert await under.delay_s() == 30
        await under.set_delay(0)
        assert await under.delay_s() == 0
        with pytest.raises(Unavailable, match="no auditor"):
            await under.trigger_audit()
        await Election(store, root).win(A)
        written: asyncio.Queue[WatchEvent] = asyncio.Queue()
        await under.watch_delay(written.put_nowait)
        assert await under.trigger_audit() == A
        assert await written.get() is WatchEvent.CHANGED
        node = await store.get(f"{under.base}/lostBookieRecoveryDelay")
        assert (node.data, node.stat.version) == (b"0", 2)
        await under.disable()
        with pytest.raises(Refused, match="disabled"):
            await under.trigger_audit()

    stores.run(scenario)


@pytest.mark.parametrize("check", Check)
def test_the_times_of_checks(stores: Stores, check: Check) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        assert await under.check_time_ms(check) is None
        for time_ms in (1700000000123, 5):
            await under.set_check_time(check, time_ms)
            assert await under.check_time_ms(check) == time_ms

    stores.run(scenario)


def test_an_unknown_layout_stops_everything(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        under = Underreplication(store, root, Clock())
        await under.ensure()
        await under.ensure()
        assert await store.children(under.base) == ["LAYOUT", "ledgers", "locks"]
        await store.overwrite(f"{under.base}/LAYOUT", b'type: "BASIC"\nversion: 2\n')
        with pytest.raises(Corrupt):
            await under.ensure()

    stores.run(scenario)
