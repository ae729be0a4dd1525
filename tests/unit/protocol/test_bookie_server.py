"""The bookie's side of a connection: batches, switches of protocol, garbage, and replies in the bytes of Java."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import Flag, Operation, Request, varint
from bkctl.errors import BadBytes
from bkctl.model.status import Status
from bkctl.protocol.bookie_server import (
    Batch,
    ServerConversation,
    encode_add_replies,
    encode_read_replies,
    encode_reply,
)
from bkctl.protocol.pieces import JOINED_MAX
from tests.unit.golden_wire import FOLDER, Frame, frames, raw_cases

KEY = bytes(range(20))
CODECS = {2: wire_v2, 3: wire_v3}


def streams() -> dict[str, list[Frame]]:
    found: dict[str, list[Frame]] = {}
    for path in sorted(FOLDER.glob("*_v*.jsonl")) + sorted(FOLDER.glob("v*.jsonl")):
        bookies = [json.loads(line).get("bookie") for line in path.read_text().splitlines() if '"hex"' in line]
        for bookie, frame in zip(bookies, frames(path.name), strict=True):
            if frame.from_client:
                found.setdefault(f"{path.name}/{bookie}/{frame.connection}", []).append(frame)
    return found


STREAMS = streams()


def flat(batches: list[Batch]) -> list[Any]:
    """Everything in the batches, in order; however they were cut, it is the same list."""
    return [item for b in batches for item in (*b.adds, *b.reads, *((b.request,) if b.request else ()))]


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_a_captured_stream_gives_the_same_requests_however_it_is_cut(stream: list[Frame]) -> None:
    expected = [item for f in stream for item in flat(fed_alone(stream[0], f))]
    singly = ServerConversation()
    by_bytes = [item for f in stream for byte in f.data for item in flat(singly.feed(bytes([byte])))]
    assert by_bytes == expected
    behind = ServerConversation()
    with_next = []
    for index, frame in enumerate(stream):
        cut = 3 if index else 0
        following = stream[index + 1].data[:3] if index + 1 < len(stream) else b"\x00\x00"
        with_next += flat(behind.feed(frame.data[cut:] + following))
    assert with_next == expected
    whole = ServerConversation()
    batches = whole.feed(b"".join(f.data for f in stream))
    assert sorted(map(repr, flat(batches))) == sorted(map(repr, expected))
    assert [b.request for b in batches if b.request] == [i for i in expected if isinstance(i, Request)]
    assert len(expected) == len(stream)
    for conversation in (singly, behind, whole):
        assert conversation.failed is None
        assert conversation.protocol == stream[0].protocol


def fed_alone(first: Frame, frame: Frame) -> list[Batch]:
    conversation = ServerConversation()
    conversation.protocol = first.protocol
    return conversation.feed(frame.data)


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_the_short_way_sees_what_the_codec_sees(stream: list[Frame]) -> None:
    for frame in stream:
        request = CODECS[frame.protocol].decode_request(frame.data[4:])
        (item,) = flat(fed_alone(stream[0], frame))
        if isinstance(item, Request):
            assert item == request
        elif len(item) == 6:
            ledger, entry, key, body, flags, token = item
            assert (ledger, entry, key, body, flags) == (
                request.ledger_id, request.entry_id, request.master_key, request.body, request.flags,
            )  # fmt: skip
            assert token == encode_reply(request, Status.OK)
            for status in Status:
                assert encode_add_replies([item], status) == encode_reply(request, status)
        else:
            ledger, entry, token = item
            assert (ledger, entry) == (request.ledger_id, request.entry_id)
            assert_read_replies(request, token)


def assert_read_replies(request: Request, token: Any) -> None:
    lac = {"max_lac": 77} if request.protocol == 3 else {}
    for status in Status:
        body = b"e" * 50 if status == Status.OK else None
        got = b"".join(encode_read_replies([(status, body, token)], lambda _: 77))
        assert got == encode_reply(request, status, **({"body": body, **lac} if body else {}))


def test_plain_adds_and_reads_are_gathered_and_another_request_closes_the_batch() -> None:
    entry = bytes(40)
    add = wire_v2.encode_request(Request(Operation.ADD, 0, 0, KEY, entry, protocol=2, version=2))
    read = wire_v2.encode_request(Request(Operation.READ, 7, 1, protocol=2, version=2))
    fence = wire_v2.encode_request(Request(Operation.READ, 7, -1, KEY, flags=Flag.FENCE, protocol=2, version=2))
    batches = ServerConversation().feed(add + read + add + fence + read)
    assert [(len(b.adds), len(b.reads), b.request is not None) for b in batches] == [(2, 1, True), (0, 1, False)]
    assert batches[0].size == 2 * (len(add) - 4)


def test_ids_of_an_add_are_those_of_its_body_and_the_reply_has_those_of_the_request() -> None:
    body = (900121).to_bytes(8, "big") + (1).to_bytes(8, "big") + bytes(8)
    (batch,) = ServerConversation().feed(wire_v3.encode_request(Request(Operation.ADD, 5, 77, KEY, body, txn=3)))
    ((ledger, entry, *_, token),) = batch.adds
    assert (ledger, entry) == (900121, 1)
    reply = wire_v3.decode_reply(token[4:])
    assert (reply.ledger_id, reply.entry_id, reply.token) == (5, 77, 3)


def test_v3_then_v2_switches_for_good() -> None:
    conversation = ServerConversation()
    v3 = wire_v3.encode_request(Request(Operation.READ, 1, 0, txn=1))
    v2 = wire_v2.encode_request(Request(Operation.READ, 1, 0, protocol=2, version=2))
    assert [len(b.reads) for b in conversation.feed(v3 + v2)] == [2]
    assert conversation.protocol == 2
    assert conversation.feed(v2 + v3)[0].reads
    assert conversation.failed is not None
    assert conversation.feed(v2) == []


CLOSED = [c for c in raw_cases() if c["closed"] and all(isinstance(s, str) for s in c["sent"])]


@pytest.mark.parametrize("case", CLOSED, ids=[c["case"] for c in CLOSED])
def test_what_java_closes_on_fails_here_too(case: dict[str, Any]) -> None:
    conversation = ServerConversation()
    for sent in case["sent"]:
        conversation.feed(bytes.fromhex(sent))
    assert isinstance(conversation.failed, BadBytes)


OPEN = [c for c in raw_cases() if not c["closed"] and all(isinstance(s, str) for s in c["sent"])]


@pytest.mark.parametrize("case", OPEN, ids=[c["case"] for c in OPEN])
def test_what_java_keeps_open_stays_open_here(case: dict[str, Any]) -> None:
    conversation = ServerConversation()
    items = [item for sent in case["sent"] for item in flat(conversation.feed(bytes.fromhex(sent)))]
    assert conversation.failed is None
    refused = [i for i in items if isinstance(i, Request) and i.refused is not None]
    for request in refused:
        assert encode_reply(request, request.refused or 0).hex() in [r["hex"] for r in case["replies"]]


def test_a_frame_of_two_gigabytes_is_refused_from_its_first_four_bytes() -> None:
    conversation = ServerConversation()
    conversation.feed((2**31 - 1).to_bytes(4, "big"))
    assert conversation.failed is not None
    assert conversation._held == []


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    for extra, fits in ((0, True), (1, False)):
        entry = bytes(976 + extra)
        frame = wire_v2.encode_request(Request(Operation.ADD, 0, 0, KEY, entry, protocol=2, version=2))
        conversation = ServerConversation(frame_size_max=1004)
        assert bool(conversation.feed(frame)) is fits
        assert (conversation.failed is None) is fits


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_garbage_never_raises(pieces: list[bytes]) -> None:
    conversation = ServerConversation()
    for piece in pieces:
        conversation.feed(piece)
    assert conversation.failed is None or isinstance(conversation.failed, BadBytes)


ALL_FROM_CLIENTS = [f for f in frames() if f.from_client]


@settings(max_examples=300)
@given(st.sampled_from(ALL_FROM_CLIENTS), st.data())
def test_a_damaged_frame_never_raises_and_is_never_taken_otherwise_than_by_the_codec(
    frame: Frame, data: st.DataObject
) -> None:
    body = bytearray(frame.data[4:])
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    conversation = ServerConversation()
    conversation.protocol = frame.protocol
    items = flat(conversation.feed(len(body).to_bytes(4, "big") + bytes(body)))
    if conversation.protocol != frame.protocol:
        return
    try:
        request = CODECS[frame.protocol].decode_request(bytes(body))
    except BadBytes:
        assert conversation.failed is not None
        return
    (item,) = items
    if isinstance(item, Request):
        assert item._replace(refused=request.refused) == request
    elif len(item) == 6:
        assert item[2:5] == (request.master_key, request.body, request.flags)
        assert encode_add_replies([item], Status.OK) == encode_reply(request, Status.OK)
    else:
        assert item[:2] == (request.ledger_id, request.entry_id)


@given(
    st.integers(0, 2**64 - 1), st.integers(-1, 2**63 - 1), st.binary(min_size=24, max_size=40), st.integers(0, 10**6)
)
def test_v3_adds_of_any_txn_and_ids(txn: int, ledger: int, body: bytes, entry: int) -> None:
    request = Request(Operation.ADD, ledger, entry, KEY, body, txn=txn)
    (batch,) = ServerConversation().feed(wire_v3.encode_request(request))
    ((*_, key, data, flags, token),) = batch.adds
    assert (key, data, flags) == (KEY, body, 0)
    assert token == encode_reply(request, Status.OK)


def test_other_orders_of_fields_and_unknown_fields_are_adds_too() -> None:
    body = bytes(30)
    inner = b"\xa0\x06\x01" + b"\x22\x1e" + body + b"\x1a\x14" + KEY + b"\x10\x05\x08\x07" + b"\xf8\x07\x01"
    message = b"\xaa\x06" + varint(len(inner)) + inner + b"\x0a\x08\x20\x64\x18\x09\x10\x02\x08\x03"
    (batch,) = ServerConversation().feed(len(message).to_bytes(4, "big") + message)
    ((*_, key, data, flags, token),) = batch.adds
    assert (key, data, flags) == (KEY, body, Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY)
    reply = wire_v3.decode_reply(token[4:])
    assert (reply.token, reply.ledger_id, reply.entry_id, reply.priority) == (9, 7, 5, 0)


def test_a_frame_that_arrives_byte_by_byte_is_kept_in_few_pieces_and_counted() -> None:
    body = bytes(200_000)
    frame = wire_v2.encode_request(Request(Operation.ADD, 0, 0, KEY, body, protocol=2, version=2))
    conversation, most = ServerConversation(), 0
    conversation.protocol = 2
    for at in range(len(frame) - 1):
        assert conversation.feed(frame[at : at + 1]) == []
        most = max(most, len(conversation._held))
        assert conversation.unfinished[0] == conversation.received == at + 1
    assert most <= 2 + len(frame) // JOINED_MAX + 1
    (batch,) = conversation.feed(frame[-1:] + frame)
    assert [add[3] for add in batch.adds] == [body, body]
    assert all(type(add[3]) is bytes for add in batch.adds)
    assert conversation.unfinished == (0, 0)
    assert conversation.received == 2 * len(frame)


def test_a_failed_conversation_leaves_nothing_to_garbage_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        conversation = ServerConversation()
        conversation.feed(b"\x7f" * 100)
        assert conversation.failed is not None
        freed = weakref.ref(conversation)
        del conversation
        assert freed() is None
    finally:
        gc.enable()
