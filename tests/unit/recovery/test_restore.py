"""Copies that an audit did not find sound are put back, on real bookies in virtual time."""

from __future__ import annotations

from typing import Any

from bkrecovery.calls import add_entries, read_entries
from bkrecovery.restore import HOLES_MAX, Hole, Restorer, plan_of

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import encode_entry
from bkctl.codec.wire import Flag
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import assert_replicated, gone_from, queue_of, recovering, until, write


def finding(
    code: str, ledger_id: int | None, entry_id: int | None, bookie: str | None, **evidence: Any
) -> dict[str, Any]:
    place = {"code": code, "ledger_id": ledger_id, "entry_id": entry_id, "bookie_id": bookie}
    return {**place, "subject": f"{code} of ledger {ledger_id}", "next": "look", "evidence": evidence}


def test_a_plan_contains_the_repairable_findings() -> None:
    findings = [
        finding("BKC401", 5, 3, "b1:3181", last_entry_id=7),
        finding("BKC107", 4, 9, "b2:3181"),
        finding("BKC404", 4, 2, "b2:3181"),
        finding("BKC404", 4, 3, None),
        finding("BKC352", None, None, "b3:3181", ledgers=[5, 8]),
        finding("BKC402", 6, 1, None),
        finding("BKC403", None, None, "gone:1"),
        finding("BKC421", 7, 0, None),
    ]
    plan = plan_of(findings)
    assert plan.holes == (
        Hole(4, BookieId("b2:3181"), 2, 2, "BKC404", True),
        Hole(4, BookieId("b2:3181"), 9, 9, "BKC107"),
        Hole(5, BookieId("b1:3181"), 3, 7, "BKC401"),
        Hole(5, BookieId("b3:3181"), 0, None, "BKC352"),
        Hole(8, BookieId("b3:3181"), 0, None, "BKC352"),
    )
    assert not plan.marks
    assert not plan.lost_bookies
    assert [(left.code, left.ledger_id) for left in plan.left] == (
        [("BKC404", 4), ("BKC402", 6), ("BKC403", None), ("BKC421", 7)]
    )
    assert plan.ledger_ids == [4, 5, 8]
    marked = plan_of(findings, mark=True)
    assert marked.holes == ()
    assert marked.marks == {
        4: ("b2:3181",),
        5: ("b1:3181", "b3:3181"),
        7: (),
        8: ("b3:3181",),
    }
    assert marked.lost_bookies == ("gone:1",)
    assert [left.code for left in marked.left] == ["BKC404", "BKC402"]


def test_a_record_with_a_corrupt_size_is_restored_at_its_known_place() -> None:
    known, unknown = finding("BKC103", 5, 3, "b1:3181"), finding("BKC103", None, None, "b1:3181")
    plan = plan_of([known, unknown])
    assert plan.holes == (Hole(5, BookieId("b1:3181"), 3, 3, "BKC103"),)
    assert [left.code for left in plan.left] == ["BKC103"]


def test_a_plan_is_bounded() -> None:
    plan = plan_of(finding("BKC401", 5, n, "b1:3181") for n in range(HOLES_MAX + 2))
    assert len(plan.holes) == HOLES_MAX
    assert [left.next.partition(":")[0] for left in plan.left] == [f"more than {HOLES_MAX} at once"] * 2


def test_holes_are_filled_and_a_second_time_nothing_is_written() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for size in ((3, 3, 2), (3, 2, 2), (4, 2, 2)):
            ledger_id = await write(bookkeeper, size)
            before, _ = await bookkeeper.ledgers.read(ledger_id)
            bookie = before.last_ensemble.bookies[1]
            await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
            plan = plan_of([finding("BKC401", ledger_id, 0, bookie, last_entry_id=399)])
            (result,) = await Restorer(bookkeeper).apply(plan)
            due = sum((1 - entry_id) % size[0] < size[1] for entry_id in range(400))
            assert (result.copied, result.error) == (due, None)
            await assert_replicated(cluster, bookkeeper, ledger_id, 400)
            assert (await bookkeeper.ledgers.read(ledger_id))[0] == before
            (again,) = await Restorer(bookkeeper).apply(plan)
            assert (again.copied, again.error) == (0, None)

    simulate(scenario, bookies=4, version=2)


def test_wrong_copies_are_replaced_by_those_of_the_others() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 20)
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        first, second, third = metadata.last_ensemble.bookies
        digest = digest_for(DigestType.CRC32C)
        other = encode_entry(ledger_id, 3, 2, 77, b"sealed well, and not what was written", digest)
        rotten = encode_entry(ledger_id, 8, 7, 78, b"sealed badly", digest)[:-1] + b"?"
        key = master_key(b"pw")
        await add_entries(bookkeeper.context, first, ledger_id, key, [(3, other), (8, rotten)], Flag.RECOVERY_ADD)
        await add_entries(bookkeeper.context, second, ledger_id, key, [(8, rotten)], Flag.RECOVERY_ADD)
        findings = [
            finding("BKC404", ledger_id, 3, first),
            finding("BKC107", ledger_id, 8, first),
            finding("BKC107", ledger_id, 8, second),
        ]
        results = await Restorer(bookkeeper).apply(plan_of(findings))
        assert [(result.copied, result.error) for result in results] == [(1, None)] * 3
        sound = await read_entries(bookkeeper.context, third, ledger_id, (3, 8))
        for bookie in (first, second):
            assert await read_entries(bookkeeper.context, bookie, ledger_id, (3, 8)) == sound

    simulate(scenario, bookies=3, version=2)


def test_entries_without_a_valid_copy_are_reported_and_not_restored() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 1), 10)
        bookies = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
        for bookie in bookies:
            await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        findings = [
            finding("BKC401", ledger_id, 4, bookies[0], last_entry_id=6),
            finding("BKC401", 12345, 0, bookies[0]),
        ]
        results = await Restorer(bookkeeper).apply(plan_of(findings))
        assert [result.copied for result in results] == [0, 0]
        assert results[0].error == "no valid copy of entry 4 and 2 more on the other bookies"
        assert results[1].error is None  # deleted meanwhile: it lacks nothing

    simulate(scenario, bookies=2, version=2)


def test_marked_ledgers_are_repaired_by_the_workers() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        cluster.kill(gone)
        plan = plan_of([finding("BKC403", None, None, gone)], mark=True)
        queue: Underreplication = queue_of(cluster)
        assert await Restorer(bookkeeper).mark(plan, queue) == {ledger_id: (gone,)}
        assert await Restorer(bookkeeper).mark(plan, queue) == {}
        async with recovering(bookkeeper):

            async def freed() -> bool:
                return await gone_from(bookkeeper, gone)

            await until(freed)
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, bookies=4, version=2)
