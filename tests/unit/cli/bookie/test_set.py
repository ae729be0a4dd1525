"""`bkctl bookie set`: what it checks before it asks a bookie, and a bookie that changes its mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.drain import DrainClaim, DrainClaims
from bkrecovery.mode import NoWay, set_mode

from bkctl.cli.bookie import set as set_verb
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo, Endpoint
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import OLD, ROOT, SERVING, STOPPED, WRITABLE, Run, info, on
from tests.unit.cli.bookie.live import live_bookies


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("off", WRITABLE, "--yes"), 2),
        (("read-only", STOPPED, "--yes"), 6),
        (("read-only", OLD, "--yes"), 3),
        (("read-only", WRITABLE), 3),
        (("read-only", WRITABLE, OLD, "--dry-run"), 3),
    ],
    ids=["bad mode", "down", "no admin port", "not confirmed", "one without admin port"],
)
def test_a_change_that_is_not_possible_is_one_error(states: MemoryTree, words: tuple[str, ...], code: int) -> None:
    answer = bkctl("bookie", "set", *words, tree=states)
    assert (answer.code, answer.stdout) == (code, "")
    assert sum(line.startswith("error: ") for line in answer.stderr.splitlines()) == 1


def test_an_admin_port_on_the_loopback_address_of_another_machine_is_not_used(tree: MemoryTree, run: Run) -> None:
    """Else a server of this machine would be made read-only."""

    async def register(store: MemoryStore) -> None:
        endpoints = [Endpoint("bookie", 1, "192.0.2.7", "bookie-rpc")]
        endpoints += [Endpoint(name, 1, "127.0.0.1", protocol) for name, protocol in (("a", "grpc"), ("h", "http"))]
        await BookieRegistry(store, ROOT).register(SERVING, BookieServiceInfo(tuple(endpoints)))

    on(tree, register)
    answer = run("bookie", "set", "read-only", SERVING, "--yes", "-o", "json")
    assert (answer.code, "adminGrpcAddress" in answer.error()["hint"]) == (3, True)

    async def drain(store: MemoryStore) -> None:
        await set_mode(BookieRegistry(store, ROOT), SERVING, read_only=True, who="x", why="y")

    with pytest.raises(NoWay, match="no admin port reachable from this machine"):
        on(tree, drain)


def test_a_bookie_that_is_being_drained_is_made_writable_only_with_yes(tree: MemoryTree, run: Run) -> None:
    async def claim(store: MemoryStore) -> None:
        await BookieRegistry(store, ROOT).register(SERVING, info("127.0.0.1", 1, 1, 1))
        await DrainClaims(store, ROOT).take(SERVING, DrainClaim("bob@b", 0))

    on(tree, claim)
    set_writable = ("bookie", "set", "writable", SERVING)
    answer = run(*set_writable, "-o", "json")
    assert (answer.code, "is being drained by bob@b" in answer.error()["message"]) == (3, True)
    assert "--cancel" in answer.error()["hint"]
    steps = run(*set_writable, "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert any("is being drained by bob@b" in step for step in steps)
    assert run(*set_writable, "--yes").code == 6, "confirmed: the bookie itself is asked, but does not answer"
    assert run("bookie", "set", "read-only", SERVING, "--dry-run", "-o", "json").json()["plan"]["steps"] == [
        f"{SERVING}: read-only"
    ]


async def test_a_bookie_changes_its_mode_and_reports_the_reason(tmp_path: Path) -> None:
    async with live_bookies(tmp_path, "b1:1") as live:
        done = await live.verb(set_verb, "read-only", ["b1:1"], "disk is replaced")
        assert done.items[0]["read_only"] is True
        (reason,) = done.items[0]["reasons"]
        assert reason["kind"] == "manual"
        assert "disk is replaced" in reason["text"]
        assert "ann" in reason["text"]
        await live.until_read_only("b1:1")
        done = await live.verb(set_verb, "writable", ["b1:1"])
        assert (done.items[0]["read_only"], done.items[0]["reasons"]) == (False, [])
