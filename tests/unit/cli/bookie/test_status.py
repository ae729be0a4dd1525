"""`bkctl bookie status`: what a bookie reports, and bookies that do not answer."""

from __future__ import annotations

from pathlib import Path

from bkctl.cli.bookie import status
from bkctl.errors import Exit
from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import STOPPED
from tests.unit.cli.bookie.live import live_bookies


def test_a_bookie_that_is_down_is_shown_with_exit_1(states: MemoryTree) -> None:
    answer = bkctl("bookie", "status", STOPPED, "-o", "json", tree=states)
    item = answer.json()
    assert (answer.code, item["state"], item["error"]) == (1, "down", "not registered")
    assert (item["address"], item["ledgers"], item["disk"], item["started"]) == (None, None, None, None)


def test_several_bookies_are_a_list(states: MemoryTree) -> None:
    rows = bkctl("bookie", "status", "-", "-o", "jsonl", tree=states, stdin=f"{STOPPED}\n".encode()).rows()
    assert [row["bookie_id"] for row in rows] == [STOPPED]


async def test_a_bookie_of_bkctl_reports_its_ledgers_disks_and_journals(tmp_path: Path) -> None:
    async with live_bookies(tmp_path, "b1:1") as live:
        await live.write(5)
        done = await live.verb(status, ["b1:1"])
    item = done.items[0]
    assert (done.exit, item["state"], item["error"], item["ledgers"]) == (Exit.OK, "rw", None, 1)
    assert item["disk"]["total"] == item["disks"][0]["total"]
    assert item["journals"][0]["offset"] > 0
    assert item["reasons"] == []
    assert item["started_ms"] > 0
