"""A broker process over a cluster of bookies: `python -m tests.broker.process METADATA_URI PORT [OPTIONS]`.

It owns every topic and keeps partitions and schemas in memory; topics and cursors are in the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from typing import Any

import uvloop
from bkdaemon.broker.backend import TopicRules
from bkdaemon.broker.cache import EntryCache
from bkdaemon.broker.ledger_node import LedgerContext
from bkdaemon.broker.server import BrokerServer

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.model.topic import TopicName
from tests.broker.backend import SoleBackend

FRAME_SIZE_MAX = 5 * 1024 * 1024 + 10 * 1024


async def main(metadata_uri: str, port: int, options: dict[str, Any]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await BookKeeper.connect(metadata_uri, ClientConfig(frame_size_max=FRAME_SIZE_MAX)) as bookkeeper:
        world = bookkeeper.context.world
        store = ManagedLedgerStore(bookkeeper.ledgers.store)
        context = LedgerContext(bookkeeper, store, EntryCache(), world)
        backend = SoleBackend(
            context,
            rules=TopicRules(**options.get("rules", {})),
            max_message_size=options.get("max_message_size", 5 * 1024 * 1024),
        )
        backend.topic_rules = options.get("topics", {})
        for name, count in options.get("partitioned", {}).items():
            backend.partitioned[TopicName.parse(name)] = count
        server = BrokerServer(backend, world)
        await server.start("127.0.0.1", port)
        backend.url = f"pulsar://127.0.0.1:{server.port}"
        print(server.port, flush=True)
        await stop.wait()
        await server.stop()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}))
