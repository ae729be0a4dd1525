"""`bkctl bookie ping`: bookies that answer, that do not, and that are not registered."""

from __future__ import annotations

import socket
from pathlib import Path

from bkctl.cli.bookie import ping
from bkctl.errors import Exit
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryTree
from bkctl.model.ids import BookieId
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import ROOT, STOPPED, info, on
from tests.unit.cli.bookie.live import live_bookies


def test_a_port_without_a_process_and_a_bookie_that_is_down_exit_with_1(states: MemoryTree) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    name = BookieId(f"127.0.0.1:{port}")
    on(states, lambda store: BookieRegistry(store, ROOT).register(name, info("127.0.0.1", port)))
    answer = bkctl("bookie", "ping", name, STOPPED, "-o", "json", tree=states)
    assert answer.code == 1
    rows = answer.json()["items"]
    assert [(r["answers"], r["milliseconds"]) for r in rows] == [(False, None), (False, None)]
    assert "does not answer" in rows[0]["error"]
    assert rows[1]["error"] == "not registered"


async def test_a_bookie_that_answers_shows_its_disk_and_the_time(tmp_path: Path) -> None:
    async with live_bookies(tmp_path, "b1:1") as live:
        done = await live.verb(ping, ["b1:1"])
    (row,) = done.items
    assert (done.exit, row["answers"], row["error"]) == (Exit.OK, True, None)
    assert row["milliseconds"] > 0
    assert 0 < row["disk"]["free"] <= row["disk"]["total"]
