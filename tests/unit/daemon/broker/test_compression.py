"""Payloads are decompressed to at most what their limit says, whatever they claim, and beside the event loop."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, cast

import cramjam
import pytest
from bkdaemon.broker.compaction.compactor import WORK_BYTES_MAX
from bkdaemon.broker.compaction.latest import Latest, plain_size

from bkctl.codec.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, compress, decompress
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_batch, encode_entry
from bkctl.errors import Corrupt
from bkctl.model.topic import Position
from bkctl.world import ThreadWorker, run_in
from tests.broker.admin import Admin, administering
from tests.broker.raw import RawClient
from tests.unit.log.logs import until

MIB = 1 << 20
LIMIT = MIB
SLACK = MIB
"""Of memory, for what a library needs beside its output."""
KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]
TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"


def metadata_of(kind: int, size: int, **fields: Any) -> Any:
    return api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, compression=kind, uncompressed_size=size, **fields
    )


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python allocated at most while it ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [NONE, *KINDS])
@pytest.mark.parametrize("plain", [b"", b"x", b"ab" * (LIMIT // 2)])
def test_a_payload_within_the_limit_comes_back(kind: int, plain: bytes) -> None:
    assert decompress(metadata_of(kind, len(plain)), compress(kind, plain), LIMIT) == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_that_claims_more_than_the_limit_is_not_decompressed(kind: int) -> None:
    payload = compress(kind, bytes(2 * LIMIT))

    def work() -> None:
        with pytest.raises(Corrupt, match=f"at most {LIMIT} bytes"):
            decompress(metadata_of(kind, 2 * LIMIT), payload, LIMIT)

    assert peak(work) < SLACK


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claimed", [0, 1, 1000])
def test_a_payload_that_has_more_than_it_claims_makes_no_more_than_that(kind: int, claimed: int) -> None:
    payload = compress(kind, bytes(64 * MIB))

    def work() -> None:
        if kind == ZLIB and claimed:  # as Java's, which stops there
            assert decompress(metadata_of(kind, claimed), payload, LIMIT) == bytes(claimed)
        elif kind == LZ4 and not claimed:
            assert decompress(metadata_of(kind, claimed), payload, LIMIT) == b""
        else:
            with pytest.raises(Corrupt):
                decompress(metadata_of(kind, claimed), payload, LIMIT)

    assert peak(work) < SLACK


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_payloads_are_corrupt(kind: int) -> None:
    for payload in (b"", b"\xff" * 100, compress(kind, bytes(1000))[:-3] + b"\x81\x82\x83"):
        try:
            assert len(decompress(metadata_of(kind, 1000), payload, LIMIT)) == 1000
        except Corrupt:
            pass


def bomb(kind: int, keys: int, messages: int) -> bytes:
    """A batch of very many small messages."""
    singles = [(api.SingleMessageMetadata(partition_key=f"k{i % keys}"), b"v") for i in range(keys)]
    plain = encode_batch(singles) * (messages // keys)
    metadata = metadata_of(kind, len(plain), num_messages_in_batch=messages)
    return encode_entry(metadata, compress(kind, plain))


def test_a_batch_of_very_many_messages_is_looked_at_in_little_memory() -> None:
    entry, latest = bomb(ZSTD, 10, 30_000), Latest()
    assert len(entry) < 20_000
    assert plain_size(entry) > 20 * len(entry)
    assert peak(lambda: latest.take(Position(1, 0), entry)) < 8 * MIB
    assert len(latest) == 10


def test_a_batch_that_is_too_large_stays_as_it_is() -> None:
    entry, latest = bomb(ZSTD, 10, 20_000), Latest(size_max=1000)
    assert latest.take(Position(1, 0), entry) == (True, 0, 1)
    assert latest.rest(Position(1, 0), entry) == entry


async def test_the_loop_runs_while_a_batch_of_very_many_messages_is_looked_at() -> None:
    worker, turns = ThreadWorker("compaction"), 0
    entry, latest = bomb(ZSTD, 10, 30_000), Latest()
    work = run_in(worker, lambda: [latest.take(Position(1, i), entry) for i in range(4)])
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert [taken.messages for taken in await work] == [30_000] * 4
    assert turns > 1000
    worker.close()


async def published(admin: Admin, entries: list[bytes]) -> RawClient:
    await admin.topic(TOPIC)
    await admin.service.server.start("client", 6650)
    _, protocol = await admin.service.world.network.connect("client", 6650, RawClient)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    await client.next(Command.CONNECTED)
    await client.produce(TOPIC)
    for i, entry in enumerate(entries):
        client.send(Command.SEND, entry, producer_id=0, sequence_id=i, num_messages=1)
        await client.next(Command.SEND_RECEIPT)
    return client


def test_60_batches_that_are_zip_bombs_are_compacted_and_none_is_decompressed_beyond_the_limit() -> None:
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

    assert peak(lambda: administering(scenario)) < 64 * MIB


def test_small_batches_are_handed_to_the_worker_together_and_large_ones_one_by_one() -> None:
    sizes = [plain_size(bomb(kind, 10, 1000)) for kind in (NONE, ZSTD)]
    assert sizes[0] - sizes[1] < 200, "the size that is decompressed counts, not the one that is stored"
    assert sizes[1] * 100 < WORK_BYTES_MAX < plain_size(bomb(ZSTD, 10, 500_000))


def test_golden_libraries_agree_on_what_is_compressed() -> None:
    plain = b"abc" * 1000
    assert zlib.decompress(compress(ZLIB, plain)) == bytes(cramjam.zstd.decompress(compress(ZSTD, plain))) == plain
