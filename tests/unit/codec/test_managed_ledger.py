"""Pulsar's records of topics: every node and cursor entry that a Java broker left, byte for byte."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.managed_ledger import (
    AckedRange,
    BatchAck,
    Compression,
    CursorState,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    SchemaIndex,
    bits_of,
    decode_cursor_info,
    decode_cursor_state,
    decode_ledger_info,
    decode_schema_entry,
    decode_schema_locator,
    encode_cursor_info,
    encode_cursor_state,
    encode_ledger_info,
    encode_schema_entry,
    encode_schema_locator,
    unwrap,
    words_of,
    wrap,
)
from bkctl.codec.proto import managed_ledger_pb2 as pb
from bkctl.codec.wire import varint
from bkctl.errors import BadBytes, Corrupt, Refused
from bkctl.model.topic import Position
from tests import pulsar_golden as golden

TREES = ("pulsar/zk_tree.json", "pulsar/zk_tree_stopped.json")
WRAPPED = ("pulsar-compressed/zk_tree.json", "pulsar-compressed/zk_tree_stopped.json")
SCHEMA_NODE = re.compile(r"/schemas/.+/[^/]+/[^/]+")


@pytest.mark.parametrize("name", TREES + WRAPPED)
def test_every_node_of_a_java_broker_byte_for_byte(name: str) -> None:
    seen: Counter[str] = Counter()
    for path, data in golden.nodes(name, golden.LEDGER_NODE):
        plain = unwrap(data, source=path)
        assert encode_ledger_info(decode_ledger_info(data, source=path)) == plain, path
        seen["ledger"] += 1
        seen["wrapped"] += plain != data
    for path, data in golden.nodes(name, golden.CURSOR_NODE):
        plain = unwrap(data, source=path)
        assert encode_cursor_info(decode_cursor_info(data, source=path)) == plain, path
        seen["cursor"] += 1
    for path, data in golden.nodes(name, SCHEMA_NODE):
        assert encode_schema_locator(decode_schema_locator(data, source=path)) == data, path
        seen["schema"] += 1
    assert min(seen["ledger"], seen["cursor"], seen["schema"]) >= 2, seen
    assert (seen["wrapped"] > 0) == (name in WRAPPED)


@pytest.mark.parametrize("name", ["pulsar/decoded.json", "pulsar-compressed/decoded.json"])
def test_values_are_those_that_java_reads(name: str) -> None:
    nodes = {node["path"]: node["data"] for node in golden.tree(name.replace("decoded", "zk_tree"))}
    compared = 0
    for path, row in golden.decoded(name).items():
        value = row["value"]
        if row["message"].startswith("ManagedLedgerInfo"):
            info = decode_ledger_info(nodes[path], source=path)
            assert [ledger.ledger_id for ledger in info.ledgers] == [x["ledgerId"] for x in value.get("ledgerInfo", [])]
            for ledger, wanted in zip(info.ledgers, value.get("ledgerInfo", []), strict=True):
                assert (ledger.entries, ledger.size) == (wanted.get("entries"), wanted.get("size"))
                assert ledger.timestamp_ms == wanted.get("timestamp")
            assert dict(info.properties) == {p["key"]: p["value"] for p in value.get("properties", [])}
        elif row["message"].startswith("ManagedCursorInfo"):
            cursor = decode_cursor_info(nodes[path], source=path)
            assert cursor.state is not None
            assert cursor.ledger_id == value["cursorsLedgerId"]
            assert cursor.state.mark_delete == (value["markDeleteLedgerId"], value["markDeleteEntryId"])
            check_state(cursor.state, value)
        else:
            continue
        compared += 1
    assert compared > 20


def check_state(state: CursorState, value: dict[str, Any]) -> None:
    ranges = [
        AckedRange(golden.position(x["lowerEndpoint"]), golden.position(x["upperEndpoint"]))
        for x in value.get("individualDeletedMessages", [])
    ]
    assert list(state.ranges) == ranges
    batches = [
        BatchAck(golden.position(x["position"]), tuple(x["deleteSet"]))
        for x in value.get("batchedEntryDeletionIndexInfo", [])
    ]
    assert list(state.batches) == batches


def test_every_entry_of_every_cursor_ledger() -> None:
    seen = 0
    for row in golden.entries():
        if row["kind"] == "cursor":
            state = decode_cursor_state(row["payload"], source="entry")
            assert encode_cursor_state(state) == row["payload"]
            assert state.mark_delete == (row["decoded"]["ledgerId"], row["decoded"]["entryId"])
            check_state(state, row["decoded"])
            seen += 1
        elif row["kind"] == "schema":
            schema = decode_schema_entry(row["payload"], source="entry")
            assert schema
    assert seen > 40


def test_worked_examples() -> None:
    info = ManagedLedgerInfo((LedgerInfo(7, 4, 212, 1700000300000), LedgerInfo(9, timestamp_ms=0)))
    data = bytes.fromhex("0a0e0807100418d40120e0f7a7ffbc310a0408092000")
    assert encode_ledger_info(info) == data
    wrapped = bytes.fromhex("4778 00000004 08021016 789ce3e2e360176091b8c2a8f0e0fbf2ff7b0cb958383815180040d705f2")
    assert decode_ledger_info(wrapped, source="x") == info == decode_ledger_info(wrap(data), source="x")
    unfinished = bytes.fromhex("4778 00000004 08021016 789ce27012b093f80f038c06870f4e7d38df04000000ffff")
    assert unwrap(unfinished, source="x").hex() == "0842103e18ffffffffffffffffff0130c3c195e19f34"
    closed = ManagedCursorInfo(
        -1, CursorState(Position(7, 1), (AckedRange(Position(7, 2), Position(7, 3)),)), 1700000000000
    )
    assert encode_cursor_info(closed).hex() == (
        "08ffffffffffffffffff0110071801220c0a0408071002120408071003" + "3080d095ffbc31"
    )
    state = CursorState(
        Position(7, 1),
        (AckedRange(Position(7, 2), Position(7, 3)),),
        batches=(BatchAck(Position(7, 2), (5,)),),
    )
    assert encode_cursor_state(state).hex() == "080710011a0c0a04080710021204080710032a080a04080710021005"


POSITIONS = st.builds(Position, st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1))
LONGS = st.integers(-(2**63), 2**63 - 1)
WORDS = st.lists(LONGS, max_size=3).map(tuple)
STATES = st.builds(
    CursorState,
    POSITIONS,
    st.lists(st.builds(AckedRange, POSITIONS, POSITIONS), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=5), LONGS, max_size=2),
    st.lists(st.builds(BatchAck, POSITIONS, WORDS), max_size=3).map(tuple),
    st.dictionaries(LONGS, WORDS, max_size=2),
)


@given(STATES)
def test_protobuf_reads_what_we_write_and_we_read_what_it_writes(state: CursorState) -> None:
    data = encode_cursor_state(state)
    message = pb.PositionInfo.FromString(data)
    assert (message.ledgerId, message.entryId) == state.mark_delete
    assert message.SerializeToString() == data
    assert decode_cursor_state(data, source="x") == state


@given(STATES, st.integers(-1, 2**63 - 1), st.none() | LONGS, st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_cursor_nodes_agree_with_protobuf(
    state: CursorState, ledger_id: int, last_active_ms: int | None, properties: dict[str, str]
) -> None:
    state = CursorState(state.mark_delete, state.ranges, state.longs, state.batches)
    info = ManagedCursorInfo(ledger_id, state, last_active_ms, properties)
    data = encode_cursor_info(info)
    assert pb.ManagedCursorInfo.FromString(data).SerializeToString() == data
    assert decode_cursor_info(data, source="x") == info


def test_what_is_not_known_is_kept() -> None:
    message = pb.ManagedLedgerInfo()
    ledger = message.ledgerInfo.add(ledgerId=3, entries=1, size=2, timestamp=3)
    ledger.offloadContext.complete = True
    ledger.offloadContext.driverMetadata.name = "aws-s3"
    ledger.properties.add(key="a", value="b")
    message.properties.add(key="pulsar.topic.epoch", value="4")
    data = message.SerializeToString() + bytes.fromhex("fa0101ff")  # field 31 of a release to come
    info = decode_ledger_info(data, source="x")
    assert encode_ledger_info(info) == data
    assert info.properties == {"pulsar.topic.epoch": "4"}


@given(st.integers(0, 2**200))
def test_words_are_those_of_a_java_bit_set(bits: int) -> None:
    words = words_of(bits)
    assert bits_of(words) == bits
    assert not words or words[-1] != 0
    assert all(-(2**63) <= word < 2**63 for word in words)


def test_schemas() -> None:
    index = [SchemaIndex(0, Position(5, 0), b"a" * 32), SchemaIndex(1, Position(6, 0), b"b" * 32)]
    data = encode_schema_locator(index)
    assert pb.SchemaLocator.FromString(data).info.version == 1
    assert decode_schema_locator(data, source="x") == index
    entry = encode_schema_entry(b"definition", index)
    assert pb.SchemaEntry.FromString(entry).SerializeToString() == entry
    assert decode_schema_entry(entry, source="x") == b"definition"


@given(st.binary(max_size=60))
def test_other_bytes_raise_bad_bytes_only(data: bytes) -> None:
    for decode in (decode_ledger_info, decode_cursor_info, decode_cursor_state, decode_schema_locator):
        try:
            decode(data, source="x")
        except (BadBytes, Refused):
            pass


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD, Compression.SNAPPY])
def test_every_compression_of_java_s_brokers_is_read(kind: Compression) -> None:
    cramjam = pytest.importorskip("cramjam")
    record = encode_ledger_info(ManagedLedgerInfo(tuple(LedgerInfo(i, 10, 1000, i) for i in range(500))))
    pack = {
        Compression.LZ4: lambda data: cramjam.lz4.compress_block(data, store_size=False),
        Compression.ZSTD: cramjam.zstd.compress,
        Compression.SNAPPY: cramjam.snappy.compress_raw,
    }[kind]
    meta = bytes((0x08, kind, 0x10)) + varint(len(record))
    node = b"\x47\x78" + len(meta).to_bytes(4, "big") + meta + bytes(pack(record))
    assert len(node) < len(record)
    assert unwrap(node, source="x") == record
    assert len(decode_ledger_info(node, source="x").ledgers) == 500
    assert unwrap(node[:-3], source="x") == node[:-3]
    short = b"\x47\x78" + len(meta).to_bytes(4, "big") + meta + bytes(pack(record[:-1]))
    assert unwrap(short, source="x") == short


def test_a_wrapper_that_lies_and_relics() -> None:
    head = bytes.fromhex("477800000004 08021002".replace(" ", ""))
    assert unwrap(head + zlib.compress(b"abcd"), source="x") == head + zlib.compress(b"abcd")
    with pytest.raises(Refused, match="method 9"):
        unwrap(bytes.fromhex("477800000004 08091002".replace(" ", "")) + b"ab", source="x")
    with pytest.raises(Corrupt, match="text form"):
        decode_ledger_info(b"ledgerInfo: {\n  ledgerId: 1\n}", source="x")
