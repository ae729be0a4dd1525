"""Bytes of nodes and cursors of managed ledgers that Java reads, and checksums of names and entries."""

from __future__ import annotations

import zlib

from bkctl.codec.managed_ledger import BatchAck, CursorState, bits_of, encode_cursor_state, unwrap
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.model.bundle import Bundles, hash_of
from bkctl.model.topic import Position


def test_a_set_bit_is_an_unacknowledged_message() -> None:
    state = CursorState(Position(7, 1), batches=(BatchAck(Position(7, 2), (5,)),))
    assert encode_cursor_state(state).hex() == "080710012a080a04080710021005"
    assert [k for k in range(64) if bits_of((5,)) >> k & 1] == [0, 2]


def test_negative_numbers_have_ten_bytes() -> None:
    assert encode_cursor_state(CursorState(Position(7, -1))).hex() == "080710" + "ff" * 9 + "01"


def test_bundles_use_crc32_and_entries_crc32c() -> None:
    assert hash_of("persistent://public/default/t1") == 0xC1EC4B02 == zlib.crc32(b"persistent://public/default/t1")
    assert Bundles.even("public/default", 4).of("persistent://public/default/t1").range == "0xc0000000_0xffffffff"
    metadata = api.MessageMetadata(
        producer_name="p-1", sequence_id=0, publish_time=1_700_000_000_000, partition_key="k1", num_messages_in_batch=1
    )
    item = bytes.fromhex("00000008" + "12026b31" + "1805" + "4000") + b"hello"
    assert encode_entry(metadata, item)[:6].hex() == "0e018009a46e", "CRC-32C"


def test_a_zlib_stream_without_an_end_is_read() -> None:
    """Java's ZLIB, of nodes and messages: the live node of the specification."""
    node = bytes.fromhex("47780000000408021016789ce27012b093f80f038c06870f4e7d38df04000000ffff")
    assert unwrap(node, source="node").hex() == "0842103e18ffffffffffffffffff0130c3c195e19f34"
