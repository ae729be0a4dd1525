"""The demo's writer process, played by a small program: entries in, acknowledgements out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bkdaemon.local.demo import Demo, _Writer, payload

from bkctl.errors import ServerError

ACKNOWLEDGES = """
import json, sys
for number, line in enumerate(sys.stdin):
    if b"entry 3 " in line.encode():
        print(json.dumps({"error": {"kind": "ledger_fenced"}}), file=sys.stderr)
        sys.exit(5)
    print(json.dumps({"ledger_id": 7, "entry_id": number}), flush=True)
"""
FAILS = "import sys; sys.exit('no bookie is available')"


@asynccontextmanager
async def writer(program: str) -> AsyncIterator[_Writer]:
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", program, stdin=-1, stdout=-1, stderr=-1)
    try:
        yield _Writer(child)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_acknowledged_entries_are_collected_until_the_writer_is_fenced() -> None:
    acked: set[int] = set()
    async with writer(ACKNOWLEDGES) as process:
        await process.feed(0, 3)
        await process.confirmed(3, acked)
        assert (acked, process.ledger_id) == ({0, 1, 2}, 7)
        assert await process.one_more(3) == ("ledger_fenced", 5, [])


async def test_a_writer_that_ends_early_is_reported_with_its_last_words() -> None:
    async with writer(FAILS) as process:
        with pytest.raises(ServerError, match="the writer ended: no bookie is available"):
            await process.confirmed(1, set())


def test_payloads_are_lines_of_different_content() -> None:
    found = [payload(entry_id) for entry_id in range(200)]
    assert len(set(found)) == 200
    assert all(40 <= len(one) <= 160 and b"\n" not in one for one in found)
    assert payload(7) == found[7], "the same in every process"


def test_commands_of_the_demo_use_its_cluster_and_no_settings_of_the_caller() -> None:
    demo = Demo(10, {"PATH": "/bin", "BKCTL_METADATA_URI": "zk://other/ledgers"})
    demo._uri = "zk://127.0.0.1:1/ledgers"
    assert demo.command("ledger", "list")[1:] == ["-m", "bkctl", "-m", "zk://127.0.0.1:1/ledgers", "ledger", "list"]
    assert demo.environ == {"PATH": "/bin"}
    assert Path(demo.command()[0]) == Path(sys.executable)
