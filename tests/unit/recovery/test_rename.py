"""Another id for a bookie in all ledgers: on both kinds of store, with others at work, stopped and gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.job import JobRecord, MoveResult
from bkrecovery.job_state import JobFile, JobState
from bkrecovery.rename import CHANGES_IN_FLIGHT_MAX, Rename, move_cookie, renamed

from bkctl.errors import NotFound, Refused
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.store import MetadataStore
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import real_world
from tests.zookeeper_fixture import Stores

A, B, C, D = (BookieId(f"{n}:3181") for n in "abcd")
NEW = BookieId("new.example.org:3181")
OPEN = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (A, B)), Ensemble(EntryId(5), (B, C))))


def test_every_segment_is_changed_and_nothing_else() -> None:
    metadata = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (A, B)), Ensemble(EntryId(5), (C, A)))).closed_at(9, 10)
    after = renamed(metadata, A, NEW)
    assert [e.bookies for e in after.ensembles] == [(NEW, B), (C, NEW)]
    assert renamed(after, NEW, A) == metadata


def test_only_segments_with_the_old_name_are_renamed(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        ledgers = LedgerStore(store, root)
        both = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (B, NEW)),)).closed_at(9, 10)
        for ledger_id, metadata in enumerate([OPEN.closed_at(9, 100), OPEN, both, OPEN.in_recovery(), OPEN]):
            await ledgers.create(metadata, ledger_id)
        await ledgers.create(LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (D,)),)), 5)
        rename = Rename(ledgers, B, NEW)
        plan = await rename.plan()
        assert plan.ledgers == [0, 3]
        assert [e for e, _ in plan.blocked] == [1, 2, 4]
        assert f"names {NEW} as well" in dict(plan.blocked)[2]
        assert "it is open" in dict(plan.blocked)[1]
        await ledgers.delete(0, (await ledgers.read(0))[1])  # meanwhile
        assert await rename.apply(plan) == [MoveResult(0), MoveResult(3, fragments=2)]
        assert (await ledgers.read(3))[0].ensembles == renamed(OPEN, B, NEW).ensembles
        plan = await Rename(ledgers, A, NEW).plan()
        assert (plan.ledgers, [e for e, _ in plan.blocked]) == (
            [1, 4],
            [3],
        )  # open, but no writer uses bookie a any more
        plan = await Rename(ledgers, C, D, open_too=True).plan()
        assert (plan.ledgers, plan.open_ledgers) == ([1, 3, 4], 2)

    stores.run(scenario)


def test_a_concurrent_change_is_not_lost(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        ledgers = LedgerStore(store, root)
        await ledgers.create(OPEN, 1)
        rename = Rename(ledgers, A, NEW)
        plan = await rename.plan()
        await ledgers.update(1, lambda m: m.with_ensemble(8, (C, D)))
        assert [r.error for r in await rename.apply(plan)] == [None]
        assert [e.bookies for e in (await ledgers.read(1))[0].ensembles] == [(NEW, B), (B, C), (C, D)]
        plan = await Rename(ledgers, C, NEW).plan()
        assert plan.ledgers == []  # its writer uses c
        plan.ledgers.append(1)
        (result,) = await Rename(ledgers, C, NEW).apply(plan)
        assert "it is open" in (result.error or "")

    stores.run(scenario)


def test_a_rename_resumes_after_the_last_completed_ledger(stores: Stores, tmp_path: Path) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        ledgers = LedgerStore(store, root)
        count = 3 * CHANGES_IN_FLIGHT_MAX
        for ledger_id in range(count):
            await ledgers.create(OPEN.closed_at(9, 100), ledger_id)
        file = JobFile(real_world().disk, tmp_path / "job.json")
        record = JobRecord(JobState("k", "c", (), 0), file)
        rename = Rename(ledgers, A, NEW, record=record)

        class Stop(Exception):
            pass

        def stop(result: MoveResult) -> None:
            if result.ledger_id == 2 * CHANGES_IN_FLIGHT_MAX:
                raise Stop

        with pytest.raises(Stop):
            await rename.apply(await rename.plan(), stop)
        record.save()
        cursor = file.load("k", "c", (), 0).cursor
        assert cursor == 2 * CHANGES_IN_FLIGHT_MAX - 1
        versions = [(await ledgers.read(e))[1] for e in range(count)]
        rest = await Rename(ledgers, A, NEW).plan(cursor)
        assert min(rest.ledgers, default=count) > cursor
        await Rename(ledgers, A, NEW).apply(rest)
        assert (await Rename(ledgers, A, NEW).plan()).ledgers == []
        assert [(await ledgers.read(e))[1] for e in range(count)] == [1 for _ in versions], (
            "each was changed exactly once"
        )

    stores.run(scenario)


def test_the_cookie(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        registry = BookieRegistry(store, root)
        with pytest.raises(NotFound):
            await move_cookie(registry, A, NEW)
        await registry.create_cookie(Cookie(A, ("/j",), ("/l",)))
        assert await move_cookie(registry, A, NEW)
        assert (await registry.cookie(NEW))[0] == Cookie(NEW, ("/j",), ("/l",))
        assert await registry.known() == {NEW}
        assert not await move_cookie(registry, A, NEW)
        await registry.create_cookie(Cookie(B, ("/other",), ("/l",)))
        with pytest.raises(Refused, match="a cookie of its own"):
            await move_cookie(registry, B, NEW)

    stores.run(scenario)
