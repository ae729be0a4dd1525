"""The client processes of the broker demo, played by small programs: progress in JSON, a pause, an end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from bkdaemon.local.broker_demo import _Client

from bkctl.errors import ServerError

PAUSES = """
import json, sys
print(json.dumps({"confirmed": 1}), flush=True)
print(json.dumps({"confirmed": 2}), flush=True)
sys.stdin.readline()
print(json.dumps({"confirmed": 3, "done": True}), flush=True)
"""
FAILS = """
import json, sys
print(json.dumps({"confirmed": 1}), flush=True)
sys.exit("the broker does not answer")
"""


@asynccontextmanager
async def client(program: str) -> AsyncIterator[_Client]:
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", program, stdin=-1, stdout=-1, stderr=-1)
    process = _Client("produce", child)
    try:
        yield process
    finally:
        await process.gone()
        assert child.returncode is not None


async def test_reports_are_read_until_a_condition_holds_and_the_client_is_resumed() -> None:
    async with client(PAUSES) as process:
        await process.until(lambda said: said["confirmed"] == 2, "two confirmed")
        assert process.said == {"confirmed": 2}
        await process.line()
        assert await process.end() == {"confirmed": 3}


async def test_a_client_that_ends_early_is_reported_with_its_role_and_stderr() -> None:
    async with client(FAILS) as process:
        with pytest.raises(ServerError, match="the produce client ended: the broker does not answer") as failed:
            await process.until(lambda said: said["confirmed"] == 2, "two confirmed")
        assert failed.value.status == 1
