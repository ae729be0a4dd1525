"""`bkctl bookie drain` and `--cancel`: which bookies can be drained, claims, and a bookie that is emptied."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from bkrecovery.drain import DrainClaim, DrainClaims, drained, refuse_drained

from bkctl.cli.bookie import drain
from bkctl.cli.jobs import JobArguments
from bkctl.errors import Exit
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from tests.command_line import Answer
from tests.unit.cli.bookie.bookie_tree import DOWN, LIVE, OTHER, ROOT, UNKNOWN, Run, on
from tests.unit.cli.bookie.live import live_bookies


def claims_of(tree: MemoryTree) -> dict[BookieId, DrainClaim]:
    return on(tree, lambda store: DrainClaims(store, ROOT).all())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((DOWN, "--yes"), 6),
        ((UNKNOWN, "--yes"), 4),
        ((UNKNOWN, "--cancel", "--yes"), 4),
        ((LIVE,), 3),
        ((LIVE, "--unload-topics", "--fence-open", "--yes"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_drain_that_is_not_possible_is_one_error(
    tree: MemoryTree, run: Run, words: tuple[str, ...], code: int
) -> None:
    answer = run("bookie", "drain", *words)
    assert (answer.code, answer.stdout, claims_of(tree)) == (code, "", {})
    assert answer.stderr.splitlines()[-1].startswith("error: ")


def test_a_bookie_without_an_admin_port_is_drained_only_with_leave_writable(tree: MemoryTree, run: Run) -> None:
    answer = run("bookie", "drain", LIVE, "--yes", "-o", "json")
    assert (answer.code, answer.error()["kind"]) == (3, "no_admin_port")
    assert "--leave-writable" in answer.error()["hint"]
    assert claims_of(tree) == {}, "nothing was changed, so nothing is claimed"
    answer = run("bookie", "drain", LIVE, "--leave-writable", "--yes", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert claims_of(tree)[LIVE].done
    answer = run("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json")
    assert answer.json()["items"][0]["made_writable"] is False, "it was writable all the time"
    assert claims_of(tree) == {}


def test_the_claim_stays_if_a_cancel_cannot_make_the_bookie_writable(tree: MemoryTree, run: Run) -> None:
    assert run("bookie", "drain", LIVE, "--leave-writable", "--yes").code == 0
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True))
    cancel = ("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json")
    answer = run(*cancel)
    assert (answer.code, answer.error()["kind"]) == (3, "no_admin_port")
    assert list(claims_of(tree)) == [LIVE]
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/readonly/{LIVE}"))  # Its operator made it writable.
    assert run(*cancel).json()["items"][0]["drained_by"] is not None
    assert claims_of(tree) == {}


def test_the_cancel_of_a_bookie_that_is_down_completes_once_it_is_back(tree: MemoryTree, run: Run) -> None:
    """It may restart read-only: its claim stays, which records that it was not; copies may be placed on it again."""

    async def claim(store: MemoryStore) -> None:
        for bookie in (LIVE, OTHER):
            await DrainClaims(store, ROOT).take(bookie, DrainClaim("bob@b", 0))
            await DrainClaims(store, ROOT).leave(bookie, done=False)

    on(tree, claim)
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/{LIVE}"))
    cancel = ("bookie", "drain", "--cancel", "-o", "json")
    plan = run(*cancel, LIVE, OTHER, "--dry-run").json()["plan"]["steps"]
    assert ["is down: its claim stays" in step for step in plan] == [True, False]
    answer = run(*cancel, LIVE, OTHER, "--yes")
    assert (answer.code, [row["bookie_id"] for row in answer.json()["items"]]) == (1, [OTHER])
    answer = run(*cancel, LIVE, "--yes")
    assert (answer.code, answer.error()["kind"]) == (6, "unavailable")
    assert "--cancel" in answer.error()["hint"]
    claims = claims_of(tree)
    assert (list(claims), claims[LIVE].was_read_only) == ([LIVE], False)
    refuse_drained(claims, [LIVE])
    assert drained(claims) == frozenset()
    assert drained({LIVE: replace(claims[LIVE], cancelled_by=None)}) == {LIVE}
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True))
    assert run(*cancel, LIVE, "--yes").error()["kind"] == "no_admin_port", "it is asked as soon as it is back"
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/readonly/{LIVE}"))
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo()))
    assert run(*cancel, LIVE, "--yes").code == 0
    assert claims_of(tree) == {}


def test_a_bookie_that_is_not_drained_can_be_cancelled(run: Run) -> None:
    plan = run("bookie", "drain", LIVE, "--cancel", "--dry-run", "-o", "json").json()["plan"]
    assert plan["steps"] == [f"{LIVE} is not being drained"]
    answer = run("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json")
    assert answer.json()["items"] == [{"bookie_id": LIVE, "drained_by": None, "made_writable": False}]


def test_a_drain_of_two_bookies_claims_neither_if_another_process_drains_one(
    tree: MemoryTree, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrainClaims.take, "__defaults__", (0.01,))

    async def main() -> Answer:
        bobs = DrainClaims(MemoryStore(tree), ROOT)
        await bobs.take(OTHER, DrainClaim("bob@b", 0))
        return await asyncio.to_thread(run, "bookie", "drain", LIVE, OTHER, "--leave-writable", "--yes", "-o", "json")

    answer = asyncio.run(main())
    assert (answer.code, "being drained by bob@b" in answer.error()["message"]) == (5, True)
    assert {bookie: claim.by for bookie, claim in claims_of(tree).items()} == {OTHER: "bob@b"}


async def test_a_drained_bookie_is_read_only_until_the_cancel_and_no_ledger_names_it(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(3)
        await live.write(4, leave_open=True)
        await live.start(b2)
        done = await live.verb(drain, [b1], fence_open=True, arguments=JobArguments())
        assert (done.exit, {item["ledger_id"]: item["fenced"] for item in done.items}) == (
            Exit.OK,
            {3: False, 4: True},
        )
        assert f"no ledger names {b1} any more" in done.stderr
        assert [await live.bookies_of(ledger_id) for ledger_id in (3, 4)] == [{b2}, {b2}]
        assert b1 in await live.registry.read_only()
        done = await live.verb(drain, [b1], cancel=True, arguments=JobArguments())
        assert [item["made_writable"] for item in done.items] == [True]
        assert await DrainClaims(MemoryStore(live.tree), ROOT).all() == {}


async def test_a_ledger_whose_writer_does_not_leave_in_time_is_an_error(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(4, leave_open=True)
        await live.start(b2)
        done = await live.verb(drain, [b1], wait=0.0, leave_writable=True, arguments=JobArguments())
        assert (done.exit, done.items[0]["ledger_id"]) == (Exit.FINDINGS, 4)
        assert done.items[0]["error"] == "it is open, and its writer still uses the bookie"
        assert "the same command retries these" in done.stderr
        assert not (await DrainClaims(MemoryStore(live.tree), ROOT).all())[b1].done
