"""Nodes of a metadata store as parts, and a source of them that is read step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.sources.nodes import partitions, step_by_step

from bkctl.errors import NotFound


def test_a_directory_without_metadata_is_no_clean_cluster(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no metadata"):
        partitions(str(tmp_path), ["/ledgers"])


def test_an_interrupt_in_the_middle_of_a_step_ends_it() -> None:
    ended: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            asyncio.get_running_loop().call_soon(interrupt)
            await asyncio.sleep(3600)
        finally:
            ended.append("it")

    steps = step_by_step(source())
    assert next(steps) == 1
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert ended == ["it"]
