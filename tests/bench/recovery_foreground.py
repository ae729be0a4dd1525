"""The row of a writer beside re-replication: how much slower its adds become while a bookie is recovered at a rate."""

from __future__ import annotations

import argparse
import asyncio
import sys
from asyncio.subprocess import DEVNULL
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.uri import parse_uri
from bkctl.world import real_world
from tests.bench.recovery_copy import BOOKIES, ENTRY_SIZE, filled
from tests.bench.recovery_row import Row, tell
from tests.interop.java_cluster import JavaCluster

RATIO_MAX: Final = 2.0
WARM_UP_S: Final = 5.0
PAYLOAD: Final = b"f" * ENTRY_SIZE


def measure(arguments: argparse.Namespace, _: list[str]) -> list[Row]:
    """p99 in ms without and with; between them the bookie is stopped, of which the writer knows nothing."""
    with filled(max(2, arguments.ledgers // 3), arguments.entries) as cluster:
        without, beside = asyncio.run(_both(cluster, arguments))
    note = f"p99 of {arguments.pace} adds/s, copies at {arguments.rate / 1e6:g} MB/s"
    return [Row("foreground", "ms", without, beside, bar_max=RATIO_MAX, note=note)]


async def _both(cluster: JavaCluster, arguments: argparse.Namespace) -> tuple[float, float]:
    lost = cluster.java_id(BOOKIES - 1)
    store, world = await open_store(cluster.uri), real_world()
    try:
        parsed = parse_uri(cluster.uri)
        ledgers = await open_ledgers(store, parsed.root, parsed.manager, write=True, random=world.random)
        registry = BookieRegistry(store, parsed.root)
        cluster.stop_java(BOOKIES - 1, kill=True)
        while lost in await registry.writable():  # noqa: ASYNC110 - another process's session
            await asyncio.sleep(0.2)
        async with BookKeeper(ledgers, registry, world, ClientConfig(version=2)) as bookkeeper:
            await _p99(bookkeeper, arguments.pace, WARM_UP_S)
            without = await _p99(bookkeeper, arguments.pace, arguments.seconds)
            command = [sys.executable, "-m", "bkctl", "-m", cluster.uri, "bookie", "recover", lost, "--yes"]
            command += ["--state", str(cluster.home / "recover.job"), "--rate", str(arguments.rate)]
            copying = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
            try:
                await asyncio.sleep(2.0)  # it starts
                beside = await _p99(bookkeeper, arguments.pace, arguments.seconds)
                assert copying.returncode is None, "the recovery was over before the measurement: give it more ledgers"
            finally:
                if copying.returncode is None:
                    copying.terminate()
                    await copying.wait()
    finally:
        await store.close()
    tell(f"foreground p99 {without:.1f} ms without, {beside:.1f} ms beside")
    return without, beside


async def _p99(bookkeeper: BookKeeper, pace: int, seconds: float) -> float:
    """Milliseconds from when an add was due until it was confirmed, of the slowest in a hundred."""
    loop = asyncio.get_running_loop()
    took_ms: list[float] = []
    async with await bookkeeper.create(3, 2, 2) as writer:
        begin = loop.time()

        def confirmed(last: int) -> None:
            now = loop.time()
            took_ms.extend((now - begin - entry_id / pace) * 1000 for entry_id in range(len(took_ms), last + 1))

        writer.on_confirmed(confirmed)
        for entry_id in range(int(pace * seconds)):
            delay_s = begin + entry_id / pace - loop.time()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            writer.append(PAYLOAD)
        await writer.flush()
    return sorted(took_ms)[len(took_ms) * 99 // 100]
