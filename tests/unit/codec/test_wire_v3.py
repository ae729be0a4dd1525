"""Wire protocol v3 against captured frames, worked bytes and protobuf."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import wire_v3
from bkctl.codec.wire import Flag, Operation, Reply, Request, reply_to, varint
from bkctl.errors import BadBytes
from bkctl.model.status import Status
from tests.unit.codec.wire_frames import ENTRY, KEY, captured, damaged, frame_name, from_text, i64, keys
from tests.unit.golden_wire import Frame

WORKED = [
    (Request(Operation.ADD, 7, 42, KEY, ENTRY, txn=1),
     "00000050 0a06080310021801 aa0645 0807 102a 1a14 <K> 2229 <ENT>"),
    (
     Request(Operation.ADD, 7, 42, KEY, ENTRY, int(Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY), txn=2, priority=100),
     "00000055 0a08080310021802 2064 aa0648 0807 102a 1a14 <K> 2229 <ENT> a00601",
     ),
    (Request(Operation.READ, 7, 42, txn=3), "0000000f 0a06080310011803 a20604 0807 102a"),
    (
     Request(Operation.READ, 7, -1, KEY, flags=1, txn=4),
     "00000031 0a06080310011804 a20626 0807 10ffffffffffffffffff01 1a14 <K> a00601",
     ),
    (
     Request(Operation.READ, 7, -1, flags=int(Flag.PIGGYBACK), txn=5, previous_lac=41, timeout_ms=1000),
     "00000020 0a06080310011805 a20615 0807 10ffffffffffffffffff01 2029 28e807 a00602",
     ),
    (
     Request(Operation.WRITE_LAC, 7, -1, KEY, ENTRY[:8] + bytes.fromhex("000000000000002ace4ff216"), txn=6, lac=42),
     "0000003b 0a06080310061806 ba0630 0807 102a 1a14 <K> 2214 0000000000000007000000000000002ace4ff216",
     ),
    (Request(Operation.READ_LAC, 7, txn=7), "0000000d 0a06080310071807 c20602 0807"),
    (Request(Operation.INFO, txn=8, requested=3), "0000000d 0a06080310081808 ca0602 0803"),
    (Request(Operation.START_TLS, txn=9), "0000000b 0a06080310091809 d20600"),
    (Request(Operation.FORCE, 7, txn=11), "0000000d 0a060803100a180b da0602 0807"),
    (Request(Operation.LIST_ENTRIES, 7, txn=12), "0000000d 0a060803100b180c e20602 0807"),
]  # fmt: skip
WORKED_REPLIES = [
    (Reply(1, 0, 7, 42, operation=2), "00000013 0a06080310021801 1000 aa0606 0800 1007 182a"),
    (Reply(1, 104, 7, 42, operation=2), "00000015 0a06080310021801 10f803 aa0607 08f803 1007 182a"),
    (Reply(3, 0, 7, 42, ENTRY, 41, operation=1),
     "00000040 0a06080310011803 1000 a20633 0800 1007 182a 2229 <ENT> 2829"),
    (Reply(8, 0, extra=(1000, 600), operation=8), "00000015 0a06080310081808 1000 ca0608 0800 10e807 18d804"),
    (Reply(9, 0, operation=9), "0000000d 0a06080310091809 1000 d20600"),
    (Reply(10, 0, body=b"", extra="AuthDisabledPlugin", operation=5),
     "00000023 0a0608031005180a 1000 b20616 0a12 4175746844697361626c6564506c7567696e 1200"),
]  # fmt: skip


def flag_first(frame: bytes) -> bytes:
    """Java 4.18 writes field 100 before field 1: moves it to where protobuf's ascending order has it."""
    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

    body: bytes = proto.Request.FromString(frame[4:]).SerializeToString()
    assert len(body) == len(frame) - 4
    return frame[:4] + body


@pytest.mark.parametrize("frame", captured(3, from_client=True), ids=frame_name)
def test_every_captured_request_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    request = wire_v3.decode_request(frame.data[4:])
    expected = flag_first(frame.data) if "4.18" in frame.file else frame.data
    assert wire_v3.encode_request(request) == expected
    assert (request.refused, request.protocol) == (None, 3)


@pytest.mark.parametrize("frame", captured(3, from_client=False), ids=frame_name)
def test_every_captured_reply_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    reply = wire_v3.decode_reply(frame.data[4:])
    assert wire_v3.encode_reply(reply) == frame.data
    if "status" in frame.decoded:
        assert Status(reply.status).v3 == frame.decoded["status"]


def test_there_are_captured_frames_of_every_operation() -> None:
    seen = {wire_v3.decode_request(frame.data[4:]).operation for frame in captured(3, from_client=True)}
    assert seen >= set(Operation) - {
        Operation.RANGE_ADD, Operation.RANGE_READ, Operation.AUTH, Operation.START_TLS, Operation.BATCH_READ,
    }  # fmt: skip
    assert len(captured(3, from_client=True)) >= 104
    assert len(captured(3, from_client=False)) >= 128


@pytest.mark.parametrize(("request_", "text"), WORKED)
def test_worked_requests(request_: Request, text: str) -> None:
    assert wire_v3.encode_request(request_) == from_text(text)
    assert wire_v3.decode_request(from_text(text)[4:]) == request_


@pytest.mark.parametrize(("reply", "text"), WORKED_REPLIES)
def test_worked_replies(reply: Reply, text: str) -> None:
    assert wire_v3.encode_reply(reply) == from_text(text)
    assert wire_v3.decode_reply(from_text(text)[4:]) == reply


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_bad_bytes(body: bytes) -> None:
    for decode in (wire_v3.decode_request, wire_v3.decode_reply):
        with contextlib.suppress(BadBytes):
            decode(body)


@given(st.sampled_from(captured(3, from_client=True) + captured(3, from_client=False)), st.data())
def test_damaged_frames_decode_or_are_bad_bytes(frame: Frame, data: st.DataObject) -> None:
    body = damaged(frame, data)
    for decode in (wire_v3.decode_request, wire_v3.decode_reply):
        with contextlib.suppress(BadBytes):
            decode(body)


@given(st.integers(0, 2**64 - 1), i64, i64, keys, st.binary(max_size=200), st.integers(0, 15).map(lambda n: n & ~1))
def test_a_packed_add_has_the_bytes_of_protobuf(
    txn: int, ledger: int, entry: int, key: bytes, body: bytes, flags: int
) -> None:
    priority = 100 if flags & Flag.HIGH_PRIORITY else 0
    request = Request(Operation.ADD, ledger, entry, key, body, flags, txn=txn, priority=priority)
    ids = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    frame = wire_v3.pack_add(varint(txn), ids, key, body, flags)
    assert frame == wire_v3.encode_request(request)
    assert wire_v3.decode_request(frame[4:]) == request


@given(st.integers(0, 2**64 - 1), i64, i64)
def test_a_packed_read_has_the_bytes_of_protobuf(txn: int, ledger: int, entry: int) -> None:
    ids = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    assert wire_v3.pack_read(varint(txn), ids) == wire_v3.encode_request(
        Request(Operation.READ, ledger, entry, txn=txn)
    )


@given(
    st.integers(0, 2**64 - 1), i64, i64, st.none() | st.binary(max_size=300), st.none() | i64, st.sampled_from(Status)
)
def test_packed_replies_have_the_bytes_of_protobuf(
    txn: int, ledger: int, entry: int, body: bytes | None, lac: int | None, status: Status
) -> None:
    raw = varint(txn)
    ids = b"\x10" + varint(ledger) + b"\x18" + varint(entry)
    read = Request(Operation.READ, ledger, entry, txn=txn)
    header = bytes([5 + len(raw)]) + b"\x08\x03\x10\x01\x18" + raw
    if body is not None:
        expected = wire_v3.encode_reply(reply_to(read, Status.OK, body=body, max_lac=lac))
        tail = b"" if lac is None else b"\x28" + varint(lac)
        assert wire_v3.pack_read_ok(header, ids, len(body), tail) + body + tail == expected
    assert wire_v3.pack_read_failed(header, ids, status) == wire_v3.encode_reply(reply_to(read, status))
    header = header.replace(b"\x10\x01\x18", b"\x10\x02\x18", 1)
    add = read._replace(operation=Operation.ADD)
    assert wire_v3.pack_add_ok(header, varint(ledger), varint(entry)) == wire_v3.encode_reply(reply_to(add, 0))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (Request(Operation.READ, 7, 42, version=2), Status.BAD_VERSION),
        (Request(Operation.RANGE_READ), Status.BAD_REQUEST),
        (Request(Operation.START_TLS, version=2), None),
    ],
    ids=["another version", "an operation that bookies do not have", "any version of start_tls"],
)
def test_a_request_that_a_bookie_cannot_execute_is_refused_with_a_status(
    request_: Request, status: Status | None
) -> None:
    assert wire_v3.decode_request(wire_v3.encode_request(request_)[4:]).refused == status


def test_a_request_without_the_message_of_its_operation_is_bad_bytes() -> None:
    body = bytes.fromhex("0a06080310011803")
    with pytest.raises(BadBytes, match="without its message"):
        wire_v3.decode_request(body)


def test_a_plain_add_and_read_match_the_short_expressions() -> None:
    add = wire_v3.encode_request(Request(Operation.ADD, 7, 42, KEY, ENTRY, txn=1))[4:]
    read = wire_v3.encode_request(Request(Operation.READ, 7, 42, txn=3))[4:]
    assert (found := wire_v3.match_add(add)) is not None
    assert found.groups()[2:] == (b"\x07", b"\x2a", KEY, b"\x29")
    assert (found := wire_v3.match_read(read)) is not None
    assert found.groups()[2:] == (b"\x07", b"\x2a")
    assert wire_v3.match_add(read) is wire_v3.match_read(add) is None


@given(st.integers(0, 2**64 - 1), i64, i64)
def test_the_parts_around_a_transaction_make_a_plain_read(txn: int, ledger: int, entry: int) -> None:
    raw, ids = varint(txn), b"\x08" + varint(ledger) + b"\x10"
    before, between = wire_v3.read_frame_around(len(raw), ids, len(varint(entry)))
    assert before + raw + between + varint(entry) == wire_v3.pack_read(raw, ids + varint(entry))
