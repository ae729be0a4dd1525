"""The traps of managed ledgers that no other test names, in virtual time and on Java's golden tree."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace

import pytest

from bkctl.codec.managed_ledger import (
    BatchAck,
    CursorState,
    ManagedLedgerInfo,
    bits_of,
    decode_ledger_info,
    encode_cursor_state,
    encode_ledger_info,
    unwrap,
)
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.errors import BkctlError, Conflict, Unavailable
from bkctl.log.state import State
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.topics import TopicStore
from bkctl.model.bundle import Bundles, hash_of
from bkctl.model.ids import BookieId
from bkctl.model.topic import EARLIEST, Position, TopicName
from tests.unit.log.logs import EAGER, NAME, TRIMMING, Broker, another, on_brokers, payloads, until


async def ledger_ids(broker: Broker) -> list[int]:
    return [int(ledger_id) async for ids in broker.context.bookkeeper.list() for ledger_id in ids]


async def spoil_node(broker: Broker) -> None:
    """Somebody else writes the topic's node."""
    info, version = await broker.ledgers.read(NAME)
    await broker.ledgers.write(NAME, info, version)


def test_02_the_last_ledger_is_recovered_before_the_next_is_created() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(3))
        await until(lambda: len(broker.confirmed) == 3)
        before, ids = await broker.ledgers.read(NAME), await ledger_ids(broker)
        writer = log._writer
        assert writer is not None
        for bookie in writer.metadata.last_ensemble.bookies:
            broker.cluster.kill(BookieId(bookie))
        second = await another(broker, read_timeout_s=2, add_timeout_s=2)
        with pytest.raises(BkctlError) as failed:
            await second.open()
        assert isinstance(failed.value, Unavailable)
        assert await broker.ledgers.read(NAME) == before
        assert await ledger_ids(broker) == ids

    on_brokers(scenario, read_timeout_s=2, add_timeout_s=2)


def test_03_a_node_that_cannot_be_written_keeps_every_ledger_it_names_and_leaves_no_other() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(TRIMMING)
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25 and log.state is State.OPEN)
        named = [one.ledger_id for one in (await broker.ledgers.read(NAME)).info.ledgers]
        await spoil_node(broker)
        cursor.ack_cumulative(broker.confirmed[-1])
        with pytest.raises(BkctlError):
            await cursor.flush()
        await until(lambda: broker.failures)
        await asyncio.sleep(5)
        assert set(named) <= set(await ledger_ids(broker)), "the node still names them"
        second = await another(broker)
        again = await second.open(EAGER)
        again.add_many(payloads(4, 25))
        await until(lambda: len(second.confirmed) == 4)
        before = await ledger_ids(broker)
        await spoil_node(broker)
        await again.roll()
        assert isinstance(second.failures[0] if second.failures else again.error, Conflict)
        await asyncio.sleep(5)
        assert await ledger_ids(broker) == before, "the ledger that no node names is deleted"

    on_brokers(scenario)


def test_04_the_lower_end_of_a_range_is_excluded_and_may_be_before_a_ledgers_first_entry() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(15))
        await until(lambda: len(broker.confirmed) == 15)
        second = broker.confirmed[10]
        assert second.entry_id == 0
        cursor.ack([second])
        await log.close()
        state = (await broker.ledgers.read_cursor(NAME, "s")).info.state
        assert state is not None
        assert state.ranges == ((Position(second.ledger_id, -1), second),)
        again = await (await another(broker)).open()
        assert [p for p in broker.confirmed if again.cursors["s"].is_acked(p)] == [second]
        await again.close()

    on_brokers(scenario)


def test_05_a_bit_that_is_set_is_a_message_that_is_left() -> None:
    state = CursorState(Position(7, 1), batches=(BatchAck(Position(7, 2), (5,)),))
    assert encode_cursor_state(state).hex() == "080710012a080a04080710021005"
    assert [k for k in range(64) if bits_of((5,)) >> k & 1] == [0, 2]


def test_06_the_time_of_a_ledger_is_that_of_its_end() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        await asyncio.sleep(1000)
        log.add_many(payloads(10))
        await until(lambda: len(broker.confirmed) == 10 and len(log.ledgers.ids) == 2)
        now_ms = broker.context.world.clock.now_ms()
        path = broker.ledgers.path(NAME)
        node = await broker.ledgers.store.get(path)
        closed, still_open = decode_ledger_info(node.data, source=path).ledgers
        assert closed.timestamp_ms is not None
        assert now_ms - 5000 < closed.timestamp_ms <= now_ms
        assert still_open.timestamp_ms == 0
        assert node.data.endswith(b"\x20\x00"), "an explicit nought, as Java writes"
        await log.close()

    on_brokers(scenario)


def test_07_negative_numbers_have_ten_bytes() -> None:
    assert encode_cursor_state(CursorState(Position(7, -1))).hex() == "080710" + "ff" * 9 + "01"


def test_08_what_is_not_known_outlives_a_rollover() -> None:
    offloaded = bytes.fromhex("2a060801100218013204707269" + "76")  # offloadContext, and a field 6 of newer releases

    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(5))
        await until(lambda: len(broker.confirmed) == 5)
        await log.close()
        info, version = await broker.ledgers.read(NAME)
        kept = replace(info.ledgers[0], rest=offloaded)
        unknown = bytes.fromhex("fa0703616263")  # a field 127
        await broker.ledgers.write(NAME, ManagedLedgerInfo((kept,), rest=unknown), version)
        again = await (await another(broker)).open()
        again.add_many(payloads(5))
        await until(lambda: again.ledgers.open_entries == 5)
        await again.roll()
        await again.close()
        after, _ = await broker.ledgers.read(NAME)
        assert (after.ledgers[0].rest, after.rest) == (offloaded, unknown)
        assert offloaded in encode_ledger_info(after)

    on_brokers(scenario)


def test_10_every_checksum_is_the_one_of_its_place() -> None:
    assert hash_of("persistent://public/default/t1") == 0xC1EC4B02 == zlib.crc32(b"persistent://public/default/t1")
    assert Bundles.even("public/default", 4).of("persistent://public/default/t1").range == "0xc0000000_0xffffffff"
    metadata = api.MessageMetadata(
        producer_name="p-1", sequence_id=0, publish_time=1_700_000_000_000, partition_key="k1", num_messages_in_batch=1
    )
    item = bytes.fromhex("00000008" + "12026b31" + "1805" + "4000") + b"hello"
    assert encode_entry(metadata, item)[:6].hex() == "0e018009a46e", "CRC-32C"


def test_13_the_last_entry_of_its_ledger_is_a_cursors_state() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        cursor = await log.open_cursor("s", EARLIEST)
        log.add_many(payloads(9))
        await until(lambda: len(broker.confirmed) == 9)
        for position in broker.confirmed[:6]:
            cursor.ack_cumulative(position)
            await cursor.flush()
        info = (await broker.ledgers.read_cursor(NAME, "s")).info
        assert info.ledger_id >= 0
        assert info.state is not None
        assert info.state.mark_delete < broker.confirmed[5], "the node tells an older place"
        again = await (await another(broker)).open()
        assert again.cursors["s"].mark_delete == broker.confirmed[5]
        await again.close()

    on_brokers(scenario)


def test_14_the_policies_of_a_namespace_have_no_children() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryTree())
        await init_pulsar(
            store, "c", ledgers_root="/ledgers", service_url="http://h:1", broker_service_url="pulsar://h:2"
        )
        namespaces, topics = NamespaceStore(store), TopicStore(store)
        await namespaces.create_namespace("public/new", ["c"])
        await namespaces.update_policies("public/new", lambda old: old | {"message_ttl_in_seconds": 1})
        await namespaces.split_bundle((await namespaces.bundles("public/new")).at(0))
        await topics.create_partitioned(TopicName.parse("public/new/t"), 2)
        for namespace in ("public/default", "public/new"):
            assert await store.children(f"/admin/policies/{namespace}") == []
        await store.close()

    asyncio.run(scenario())


def test_22_of_the_protocol_a_stream_without_an_end_is_read() -> None:
    """Java's ZLIB, of nodes and messages: the live node of the specification."""
    node = bytes.fromhex("47780000000408021016789ce27012b093f80f038c06870f4e7d38df04000000ffff")
    assert unwrap(node, source="node").hex() == "0842103e18ffffffffffffffffff0130c3c195e19f34"
