"""What `drain` and `decommission` share: live bookies, claims, modes, and a drain that another process cancels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bkrecovery.drain import DrainClaim, DrainClaims

from bkctl.cli.bookie import _draining, drain
from bkctl.cli.jobs import JobArguments
from bkctl.errors import Conflict, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from tests.unit.cli.bookie.bookie_tree import LIVE, ROOT, Run, on
from tests.unit.cli.bookie.live import live_bookies


def test_an_interrupted_drain_is_resumed_under_its_first_claim(tree: MemoryTree, run: Run) -> None:
    async def claim(store: MemoryStore) -> None:
        claims = DrainClaims(store, ROOT)
        await claims.take(LIVE, DrainClaim("bob@b", 7))
        await claims.leave(LIVE, done=False)

    on(tree, claim)
    answer = run("bookie", "drain", LIVE, "--leave-writable", "--yes")
    assert (answer.code, f"resuming the drain of {LIVE}" in answer.stderr) == (0, True)
    kept = on(tree, lambda store: DrainClaims(store, ROOT).all())[LIVE]
    assert (kept.since_ms, kept.done) == (7, True)


def test_a_bookie_that_was_read_only_before_stays_so_after_the_cancel(tree: MemoryTree, run: Run) -> None:
    on(tree, lambda store: store.delete_any(f"{ROOT}/available/{LIVE}"))
    on(tree, lambda store: BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo(), read_only=True))
    assert run("bookie", "drain", LIVE, "--yes").code == 0, "it needs no admin port: it is read-only"
    assert on(tree, lambda store: DrainClaims(store, ROOT).all())[LIVE].was_read_only
    steps = run("bookie", "drain", LIVE, "--cancel", "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert steps[0].endswith("it was read-only before, and stays read-only")
    item = run("bookie", "drain", LIVE, "--cancel", "--yes", "-o", "json").json()["items"][0]
    assert item["made_writable"] is False


async def test_a_drain_that_waits_for_a_writer_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(4, leave_open=True)
        await live.start(b2)
        work = asyncio.ensure_future(live.verb(drain, [b1], arguments=JobArguments()))
        await live.until_read_only(b1)
        cancelled = await live.verb(drain, [b1], cancel=True, arguments=JobArguments())
        assert cancelled.items[0]["made_writable"] is True
        with pytest.raises(Conflict, match="the drain was cancelled by ann@"):
            await work
        assert await live.bookies_of(4) == {b1}


async def test_a_bookie_that_stays_writable_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookie accepts the change, but its session cannot register it."""
    monkeypatch.setattr(_draining, "MODE_WAIT_S", 0.0)
    async with live_bookies(tmp_path, "b1:1") as live:
        service = live.services["b1:1"]
        assert service._registrar is not None
        service._registrar.cancel()
        with pytest.raises(Unavailable, match="did not become read-only"):
            await live.verb(drain, ["b1:1"], arguments=JobArguments())
        assert BookieId("b1:1") in await DrainClaims(MemoryStore(live.tree), ROOT).all(), "a cancel makes it writable"
