"""What is left of entries: as a Java broker left them, and for any entries exactly the last value of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from bkdaemon.broker.compaction.latest import WHOLE, Latest, last_index, plain_size
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, compress, decompress
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_compacted import decode_compacted, encode_compacted, encode_compacted_to
from bkctl.codec.pulsar_entry import (
    batch_messages,
    encode_batch,
    encode_entry,
    split_body,
    split_entry,
    with_broker_metadata,
)
from bkctl.errors import BadBytes, Corrupt
from bkctl.model.topic import Position
from tests.broker.batches import large_batch, peak_bytes
from tests.pulsar_golden import decoded, entries

DATA, COMPACTED = 67, 68
"""Ledgers of the golden topic `compact`."""
HORIZON = 11
"""The last entry that had been sent when it was compacted."""


@dataclass(frozen=True)
class Message:
    """What a producer sends: a key or none, a payload or (as a tombstone) none."""

    key: str | None
    payload: bytes


def entry_of(messages: list[Message], *, batch: bool, compression: int = NONE, **fields: Any) -> bytes:
    """An entry as Java's producers send it."""
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, compression=compression, **fields)
    if batch:
        singles = [
            (api.SingleMessageMetadata(**({} if m.key is None else {"partition_key": m.key})), m.payload)
            for m in messages
        ]
        plain = encode_batch(singles)
        metadata.num_messages_in_batch = len(messages)
    else:
        plain = messages[0].payload
        if messages[0].key is not None:
            metadata.partition_key = messages[0].key
    metadata.uncompressed_size = len(plain)
    return encode_entry(metadata, compress(compression, plain))


def seen(entry: bytes) -> list[tuple[int, Message]]:
    """(index, message) of what a client that knows compaction shows of an entry."""
    metadata, payload = split_entry(entry)
    plain = decompress(metadata, payload, 1 << 20)
    if not metadata.HasField("num_messages_in_batch"):
        return [(WHOLE, Message(metadata.partition_key if metadata.HasField("partition_key") else None, plain))]
    return [
        (index, Message(single.partition_key if single.HasField("partition_key") else None, bytes(body)))
        for index, (single, body) in enumerate(batch_messages(plain, metadata.num_messages_in_batch))
        if not single.compacted_out
    ]


def compacted(log: list[tuple[Position, bytes]], *, keep_unkeyed: bool = False) -> list[tuple[Position, bytes]]:
    latest = Latest(keep_unkeyed=keep_unkeyed)
    for position, entry in log:
        latest.take(position, entry)
    return [(p, rest) for p, entry in log if (rest := latest.rest(p, entry)) is not None]


def test_a_golden_topic_becomes_what_java_made_of_it() -> None:
    rows = [row for row in entries() if row["ledger"] == DATA and row["entry"] <= HORIZON]
    log = [(Position(DATA, row["entry"]), row["payload"]) for row in rows]
    made = [encode_compacted(position, -1, body) for position, body in compacted(log)]
    assert made == [row["payload"] for row in entries() if row["ledger"] == COMPACTED]
    assert [decode_compacted(data, source="")[0] for data in made] == [Position(DATA, i) for i in (6, 9, 11)]


def test_the_golden_ledger_tells_how_far_it_goes() -> None:
    custom = {
        one["key"]: bytes.fromhex(one["value"]["hex"])
        for one in decoded()[f"/ledgers/00/0000/L{COMPACTED:04}"]["value"]["customMetadata"]
    }
    assert encode_compacted_to(Position(DATA, 11), -1) == custom["pulsar/compactedTo"]
    assert api.MessageIdData.FromString(encode_compacted_to(Position(1, 2), 3)).partition == 3


keys = st.sampled_from([None, "a", "b", "c", "d"])
messages = st.builds(Message, keys, st.sampled_from([b"", b"1", b"22", b"333"]))
log_entries = st.lists(
    st.tuples(
        st.lists(messages, min_size=1, max_size=5),
        st.booleans(),
        st.sampled_from([NONE, LZ4, ZLIB, ZSTD, SNAPPY]),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(log_entries, st.booleans(), st.integers(0, 12))
def test_what_is_seen_is_the_last_value_of_each_key_in_order(
    given_entries: list[tuple[list[Message], bool, int, bool]], keep_unkeyed: bool, cut: int
) -> None:
    log: list[tuple[Position, bytes]] = []
    sent: list[tuple[Position, int, Message]] = []
    for number, (several, batch, compression, stamped) in enumerate(given_entries):
        several = several if batch else several[:1]
        position = Position(5 + number // 4, number % 4)
        entry = entry_of(several, batch=batch, compression=compression)
        log.append((position, with_broker_metadata(entry, 1, number) if stamped else entry))
        sent += [(position, index if batch else WHOLE, message) for index, message in enumerate(several)]
    last: dict[str, tuple[Position, int, Message]] = {}
    for one in sent:
        key = one[2].key
        if key is not None:
            last.pop(key, None)
            if one[2].payload:
                last[key] = one
    expected = [one for one in sent if (keep_unkeyed if one[2].key is None else last.get(one[2].key) == one)]
    whole = compacted(log, keep_unkeyed=keep_unkeyed)
    assert [(p, i, m) for p, entry in whole for i, m in seen(entry)] == expected
    twice = compacted(compacted(log[:cut], keep_unkeyed=keep_unkeyed) + log[cut:], keep_unkeyed=keep_unkeyed)
    assert [(p, i, m) for p, entry in twice for i, m in seen(entry)] == expected, "as well upon what was compacted"
    for _, entry in whole:
        indexes = [index for index, _ in seen(entry)]
        assert last_index(entry) == (indexes[-1] if len(given_entries) and _count(entry) > 1 else WHOLE)


def _count(entry: bytes) -> int:
    return int(split_entry(entry)[0].num_messages_in_batch)


def test_what_cannot_be_looked_into_stays_whole() -> None:
    broken = entry_of([Message("a", b"1")], batch=True)[:-1]
    secret = entry_of([Message("a", b"1"), Message("b", b"2")], batch=True, partition_key="k")
    metadata, payload = split_entry(secret)
    metadata.encryption_keys.add(key="k", value=b"v")
    secret = encode_entry(metadata, payload)
    log = [
        (Position(1, 0), broken),
        (Position(1, 1), secret),
        (Position(1, 2), entry_of([Message("a", b"2")], batch=False)),
    ]
    assert compacted(log) == log
    latest = Latest()
    with pytest.raises(BadBytes):
        latest.take(Position(1, 3), b"\x00")


def test_an_unknown_compression_and_a_foreign_entry_are_told() -> None:
    with pytest.raises(Corrupt):
        compress(9, b"")
    for data in (b"", b"\0\0\0\x02\x08", b"\0\0\0\0\0\0\0\x09ab", b"\0\0\0\1\xff\0\0\0\0"):
        with pytest.raises(Corrupt):
            decode_compacted(data, source="ledger 1")
    with pytest.raises(Corrupt):
        split_body(b"\0")


MIB = 1 << 20


def test_a_batch_of_many_messages_is_read_in_little_memory() -> None:
    entry, latest = large_batch(ZSTD, 10, 30_000), Latest()
    assert len(entry) < 20_000
    assert plain_size(entry) > 20 * len(entry)
    assert peak_bytes(lambda: latest.take(Position(1, 0), entry)) < 8 * MIB
    assert len(latest) == 10


def test_a_batch_over_the_size_limit_is_kept_whole() -> None:
    entry, latest = large_batch(ZSTD, 10, 20_000), Latest(size_max=1000)
    assert latest.take(Position(1, 0), entry) == (True, 0, 1)
    assert latest.rest(Position(1, 0), entry) == entry
