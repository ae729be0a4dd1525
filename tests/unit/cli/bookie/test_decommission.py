"""`bkctl bookie decommission`: the cookie is deleted once no ledger names the bookie and it is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkctl.cli.bookie import decommission
from bkctl.cli.jobs import JobArguments
from bkctl.errors import Exit
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Node
from bkctl.model.bookie import BookieServiceInfo, Cookie
from bkctl.model.ids import BookieId
from tests.unit.cli.bookie.bookie_tree import DOWN, LIVE, OTHER, ROOT, UNKNOWN, Run, on
from tests.unit.cli.bookie.live import live_bookies

BACK = BookieId("10.0.0.5:3181")


@pytest.fixture
def idle(tree: MemoryTree) -> MemoryTree:
    """A cluster in which BACK has a cookie, and no ledger names it."""
    on(tree, lambda store: BookieRegistry(store, ROOT).create_cookie(Cookie(BACK, ("/j",), ("/l",))))
    return tree


def known(tree: MemoryTree) -> set[BookieId]:
    return on(tree, lambda store: BookieRegistry(store, ROOT).known())


@pytest.mark.parametrize(
    ("words", "code"),
    [((LIVE, "--yes"), 3), ((UNKNOWN, "--yes"), 4), ((DOWN,), 3), ((DOWN, "--to", DOWN, "--yes"), 2)],
    ids=["running", "unknown", "not confirmed", "to itself"],
)
def test_a_decommission_that_is_not_possible_is_one_error(
    tree: MemoryTree, run: Run, words: tuple[str, ...], code: int
) -> None:
    answer = run("bookie", "decommission", *words)
    assert (answer.code, answer.stdout) == (code, "")
    assert answer.stderr.splitlines()[-1].startswith("error: ")
    assert known(tree) == {LIVE, OTHER, DOWN}


def test_the_plan_ends_with_the_cookie(run: Run, tmp_path: Path) -> None:
    steps = run("bookie", "decommission", DOWN, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert steps[-1] == f"delete the cookie of {DOWN}"
    steps = run("bookie", "decommission", LIVE, "--drain", "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert (steps[0], steps[-2:]) == (f"make {LIVE} read-only", ["wait until it is stopped", steps[-1]])
    assert not (tmp_path / "state").exists()


def test_a_bookie_that_no_ledger_names_is_removed(idle: MemoryTree, run: Run) -> None:
    answer = run("bookie", "decommission", BACK, "--yes", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert f"{BACK} is decommissioned" in answer.stderr
    assert known(idle) == {LIVE, OTHER, DOWN}


class ComesBack(MemoryStore):
    """A store in which a bookie that was down registers when its cookie is read."""

    async def get(self, path: str) -> Node:
        if path.endswith(f"/cookies/{BACK}"):
            await BookieRegistry(MemoryStore(self.tree), ROOT).register(BACK, BookieServiceInfo())
        return await super().get(path)


def test_a_bookie_that_is_running_again_keeps_its_cookie(
    idle: MemoryTree, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", ComesBack)
        answer = run("bookie", "decommission", BACK, "--yes", "-o", "json")
    assert (answer.code, "is running again" in answer.stderr) == (1, True), answer.stderr
    assert BACK in known(idle)


async def test_a_stopped_bookie_is_recovered_and_removed(tmp_path: Path) -> None:
    b1, b2, b3 = map(BookieId, ("b1:1", "b2:1", "b3:1"))
    async with live_bookies(tmp_path, b1, b2) as live:
        await live.write(3, copies=2)
        await live.start(b3)
        await live.stop(b2)
        done = await live.verb(decommission, b2, arguments=JobArguments())
        assert (done.exit, [item["ledger_id"] for item in done.items]) == (Exit.OK, [3])
        assert await live.bookies_of(3) == {b1, b3}
        assert await live.registry.known() == {b1, b3}


async def test_a_bookie_whose_ledger_has_no_other_copy_keeps_its_cookie(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(3)
        await live.start(b2)
        await live.stop(b1)
        done = await live.verb(decommission, b1, arguments=JobArguments())
        assert (done.exit, f"ledgers still name {b1}, so its cookie stays" in done.stderr) == (Exit.FINDINGS, True)
        assert b1 in await live.registry.known()


async def test_an_empty_bookie_that_is_not_stopped_in_time_keeps_its_cookie(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(3)
        await live.start(b2)
        done = await live.verb(decommission, b1, drain=True, wait=0.0, arguments=JobArguments())
        assert (done.exit, f"{b1} is empty but still running" in done.stderr) == (Exit.FINDINGS, True)
        assert await live.registry.known() == {b1, b2}


async def test_a_drained_bookie_is_removed_when_it_is_stopped(tmp_path: Path) -> None:
    b1, b2 = map(BookieId, ("b1:1", "b2:1"))
    async with live_bookies(tmp_path, b1) as live:
        await live.write(3)
        await live.start(b2)
        work = asyncio.ensure_future(live.verb(decommission, b1, drain=True, arguments=JobArguments()))
        await live.until_moved(3, {b2})
        await live.stop(b1)
        done = await work
        assert (done.exit, f"{b1} is decommissioned" in done.stderr) == (Exit.OK, True)
        assert await live.registry.known() == {b2}
