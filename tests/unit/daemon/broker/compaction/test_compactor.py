"""One compaction in two phases: takeovers at any moment, failures, large batches and their memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bkdaemon.broker.compaction.compactor import WORK_BYTES_MAX
from bkdaemon.broker.compaction.latest import Latest, plain_size
from bkdaemon.broker.topic.topic import Topic

from bkctl.codec.compression import NONE, ZSTD, compress
from bkctl.codec.managed_ledger import COMPACTED, COMPACTION_CURSOR
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_batch, encode_entry, split_entry
from bkctl.errors import Conflict
from bkctl.model.topic import EARLIEST, Position
from bkctl.world import ThreadWorker, run_in
from tests.broker.admin import Admin, administering
from tests.broker.batches import large_batch, metadata_of, peak_bytes
from tests.broker.compacting import LIVE, NAME, RULES, compact
from tests.broker.raw import RawClient, entry_of
from tests.broker.scenarios import TOPIC, connected
from tests.unit.log.logs import TRIMMING, Broker, another, on_brokers, until

MOMENTS = 12
"""At which a compaction is cut."""


async def view(topic: Topic) -> list[tuple[str, str]]:
    """What a reader of the compacted topic gets from its beginning on."""
    found: list[bytes] = []
    start = EARLIEST
    compacted = await topic.compaction.ledger()
    if compacted is not None:
        found += [entry for _, entry in await compacted.read(EARLIEST, 1000, 1_000_000)]
        start = Position(compacted.horizon.ledger_id, compacted.horizon.entry_id + 1)
    while entries := await topic.ledger.read(start, 100, 1_000_000):
        found += [entry for _, entry in entries]
        start = topic.ledger.next_position(entries[-1][0])
    parts = [split_entry(entry) for entry in found]
    return [(metadata.partition_key, payload.decode()) for metadata, payload in parts]


MIB = 1 << 20
PATH = "/admin/v2/persistent/public/default/t"


async def published(admin: Admin, entries: list[bytes]) -> RawClient:
    await admin.topic(TOPIC)
    client = await connected(admin)
    await client.produce(TOPIC)
    for i, entry in enumerate(entries):
        client.send(Command.SEND, entry, producer_id=0, sequence_id=i, num_messages=1)
        await client.next(Command.SEND_RECEIPT)
    return client


def test_a_takeover_at_any_moment_loses_nothing_and_leaves_at_most_one_orphan() -> None:
    """Another broker takes the topic while it is compacted the second time, later and later."""

    async def crash(broker: Broker, after_s: float | None) -> float | None:
        """How long the compaction took, None if it was cut."""
        now = broker.context.world.clock.now_ms
        log = await broker.open(TRIMMING)
        topic = await Topic.open(NAME, log, RULES, now)
        stored: list[Position] = []
        log.on_confirmed = stored.extend
        for part in range(2):
            entries = [entry_of(i, b"v%d" % i, partition_key=f"k{i % 3}") for i in range(part * 15, part * 15 + 15)]
            log.add_many(entries)
            await until(lambda count=part * 15 + 15: len(stored) == count)  # type: ignore[misc]
            if not part:
                await compact(topic)
        topic.compaction.trigger(RULES)
        if after_s is None:
            await until(lambda: not topic.compaction.running)
        else:
            await asyncio.sleep(after_s)
        took_s = None if topic.compaction.running else topic.compaction.record.last_duration_ms / 1000
        other = await another(broker)
        log = None
        while log is None:  # the one that is deposed may write between two steps of the other
            with suppress(Conflict):
                log = await other.open(TRIMMING)
        taken = await Topic.open(NAME, log, RULES, now)
        found = await view(taken)
        assert dict(found) == LIVE
        assert found[-3:] == list(LIVE.items())
        await topic.close()
        named = {*log.ledgers.ids, log.cursors[COMPACTION_CURSOR].longs[COMPACTED]}
        named |= {cursor.ledger_id for cursor in log.cursors.values()}
        ids = {one async for batch in other.context.bookkeeper.list() for one in batch}
        assert len(ids - named) <= 1, "an orphan"
        await compact(taken)
        assert await view(taken) == list(LIVE.items())
        await taken.close()
        return took_s

    whole_s = on_brokers(lambda broker: crash(broker, None))
    assert whole_s
    cuts = [on_brokers(lambda broker: crash(broker, whole_s * part / MOMENTS)) for part in range(MOMENTS)]  # noqa: B023
    assert cuts.count(None) > MOMENTS / 2


async def test_the_event_loop_runs_while_a_large_batch_is_read() -> None:
    worker, turns = ThreadWorker("compaction"), 0
    entry, latest = large_batch(ZSTD, 10, 30_000), Latest()
    work = run_in(worker, lambda: [latest.take(Position(1, i), entry) for i in range(4)])
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert [taken.messages for taken in await work] == [30_000] * 4
    assert turns > 1000
    worker.close()


def test_batches_over_the_size_limit_are_compacted_without_decompressing_them() -> None:
    """Each claims 64 MiB in a few kilobytes: the batches stay, as those that cannot be read."""
    plain = encode_batch([(api.SingleMessageMetadata(partition_key="k"), bytes(MIB))]) * 64
    entry = encode_entry(metadata_of(ZSTD, len(plain), num_messages_in_batch=64), compress(ZSTD, plain))

    async def scenario(admin: Admin) -> None:
        await published(admin, [entry] * 60)
        topic = await admin.topic(TOPIC)
        topic.compaction.trigger(topic.rules)
        await until(lambda: not topic.compaction.running)
        assert topic.compaction.status["status"] == "SUCCESS"
        compacted = await topic.compaction.ledger()
        assert compacted is not None
        assert compacted.entries == 60
        answer = await admin.ask("GET", f"{PATH}/examinemessage?initialPosition=earliest&messagePosition=1")
        assert answer.status >= 400
        assert "at most" in answer.body["reason"]

    assert peak_bytes(lambda: administering(scenario)) < 64 * MIB


def test_the_worker_gets_small_batches_together_and_large_ones_singly() -> None:
    sizes = [plain_size(large_batch(kind, 10, 1000)) for kind in (NONE, ZSTD)]
    assert sizes[0] - sizes[1] < 200, "the size that is decompressed counts, not the one that is stored"
    assert sizes[1] * 100 < WORK_BYTES_MAX < plain_size(large_batch(ZSTD, 10, 500_000))
