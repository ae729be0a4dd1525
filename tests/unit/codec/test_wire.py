"""Both wire codecs against every captured frame, then their properties."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import Flag, Operation, Reply, Request, reply_to, unvarint, varint
from bkctl.errors import BadBytes
from bkctl.model.status import Status
from tests.unit.golden_wire import Frame, frames

FRAMES = frames()
CODECS = {2: wire_v2, 3: wire_v3}
i64 = st.integers(-(2**63), 2**63 - 1)
keys = st.binary(min_size=20, max_size=20)


def name(frame: Frame) -> str:
    return f"{frame.file}:{frame.number}"


def flag_first(frame: bytes) -> bytes:
    """Java 4.18 writes field 100 before field 1: moves it to where protobuf's ascending order has it."""
    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

    body: bytes = proto.Request.FromString(frame[4:]).SerializeToString()
    assert len(body) == len(frame) - 4
    return frame[:4] + body


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.from_client], ids=name)
def test_every_captured_request_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    codec = CODECS[frame.protocol]
    request = codec.decode_request(frame.data[4:])
    expected = frame.data
    if "4.18" in frame.file and frame.protocol == 3:
        expected = flag_first(expected)
    assert codec.encode_request(request) == expected
    assert request.refused is None
    assert request.protocol == frame.protocol


@pytest.mark.parametrize("frame", [f for f in FRAMES if not f.from_client], ids=name)
def test_every_captured_reply_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    codec = CODECS[frame.protocol]
    reply = codec.decode_reply(frame.data[4:])
    assert codec.encode_reply(reply) == frame.data
    decoded = frame.decoded
    if "code" in decoded:
        assert (reply.status, reply.ledger_id) == (decoded["code"], decoded["ledgerId"])
    if "status" in decoded:
        assert Status(reply.status).v3 == decoded["status"]


def test_there_are_frames_of_every_operation_and_both_roles() -> None:
    seen = {
        (f.protocol, f.from_client, CODECS[f.protocol].decode_request(f.data[4:]).operation)
        for f in FRAMES
        if f.from_client
    }
    assert {op for protocol, _, op in seen if protocol == 2} >= {Operation.ADD, Operation.READ, Operation.BATCH_READ}
    assert {op for protocol, _, op in seen if protocol == 3} >= set(Operation) - {
        Operation.RANGE_ADD, Operation.RANGE_READ, Operation.AUTH, Operation.START_TLS, Operation.BATCH_READ,
    }  # fmt: skip
    assert len(FRAMES) > 400


KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
ENTRY = bytes.fromhex("0000000000000007000000000000002a0000000000000029000000000000303917809dcc68656c6c6f")
SECOND = bytes.fromhex("0000000000000007000000000000002b000000000000002a000000000000303e9a0e4a1d776f726c64")
V2 = {"protocol": 2, "version": 2}
WORKED = [
    (Request(Operation.ADD, 7, 42, KEY, ENTRY, **V2), "00000041 02010000 <K> <ENT>"),
    (Request(Operation.READ, 7, 42, **V2), "00000014 02020000 0000000000000007 000000000000002a"),
    (Request(Operation.READ, 7, -1, KEY, flags=1, **V2), "00000028 02020001 0000000000000007 ffffffffffffffff <K>"),
    (Request(Operation.READ, 7, 42, KEY, flags=5, **V2), "00000028 02020005 0000000000000007 000000000000002a <K>"),
    (
        Request(Operation.BATCH_READ, 7, 42, txn=9, count_max=10, size_max=5253120, **V2),
        "00000028 02070000 0000000000000007 000000000000002a 0000000000000009 0000000a 0000000000502800",
    ),
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
    (2, Reply(0, 0, 7, 42, operation=2, version=2), "00000018 02010000 00000000 0000000000000007 000000000000002a"),
    (2, Reply(0, 104, 7, 42, operation=2, version=2), "00000018 02010000 00000068 0000000000000007 000000000000002a"),
    (2, Reply(0, 0, 7, 42, ENTRY, operation=1, version=2),
     "00000041 02020000 00000000 0000000000000007 000000000000002a <ENT>"),
    (2, Reply(0, 2, 7, 42, operation=1, version=2), "00000018 02020000 00000002 0000000000000007 000000000000002a"),
    (2, Reply(9, 0, 7, 42, extra=[ENTRY, SECOND], operation=12, version=2),
     "0000007a 02070000 00000000 0000000000000007 000000000000002a 0000000000000009 00000029 <ENT> 00000029 <E43>"),
    (2, Reply(9, 1, 7, 42, extra=[], operation=12, version=2),
     "00000020 02070000 00000001 0000000000000007 000000000000002a 0000000000000009"),
    (2, Reply(0, 0, body=b"", extra="AuthDisabledPlugin", operation=5, version=2),
     "0000001a 02030000 0a12 4175746844697361626c6564506c7567696e 1200"),
    (3, Reply(1, 0, 7, 42, operation=2), "00000013 0a06080310021801 1000 aa0606 0800 1007 182a"),
    (3, Reply(1, 104, 7, 42, operation=2), "00000015 0a06080310021801 10f803 aa0607 08f803 1007 182a"),
    (3, Reply(3, 0, 7, 42, ENTRY, 41, operation=1),
     "00000040 0a06080310011803 1000 a20633 0800 1007 182a 2229 <ENT> 2829"),
    (3, Reply(8, 0, extra=(1000, 600), operation=8), "00000015 0a06080310081808 1000 ca0608 0800 10e807 18d804"),
    (3, Reply(9, 0, operation=9), "0000000d 0a06080310091809 1000 d20600"),
    (3, Reply(10, 0, body=b"", extra="AuthDisabledPlugin", operation=5),
     "00000023 0a0608031005180a 1000 b20616 0a12 4175746844697361626c6564506c7567696e 1200"),
]  # fmt: skip


def from_text(text: str) -> bytes:
    text = text.replace("<K>", KEY.hex()).replace("<ENT>", ENTRY.hex()).replace("<E43>", SECOND.hex())
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(("request_", "text"), WORKED)
def test_worked_requests(request_: Request, text: str) -> None:
    codec = CODECS[request_.protocol]
    assert codec.encode_request(request_) == from_text(text)
    assert codec.decode_request(from_text(text)[4:]) == request_


@pytest.mark.parametrize(("protocol", "reply", "text"), WORKED_REPLIES)
def test_worked_replies(protocol: int, reply: Reply, text: str) -> None:
    assert CODECS[protocol].encode_reply(reply) == from_text(text)
    assert CODECS[protocol].decode_reply(from_text(text)[4:]) == reply


@pytest.mark.parametrize("bits", range(64))
def test_varints_of_every_length_come_back(bits: int) -> None:
    for value in {(1 << bits) - 1, 1 << bits, (1 << bits) + 1} | {0b1010_1010_1010_1010 << bits >> 16}:
        signed = value - (1 << 64) if value >> 63 else value
        assert unvarint(varint(signed)) == signed


@given(i64)
def test_varints_come_back(value: int) -> None:
    assert unvarint(varint(value)) == value


@given(st.integers(0, 2**64 - 1), i64, i64, keys, st.binary(max_size=200), st.integers(0, 15).map(lambda n: n & ~1))
def test_the_packed_add_is_the_protobuf_add(
    txn: int, ledger: int, entry: int, key: bytes, body: bytes, flags: int
) -> None:
    priority = 100 if flags & Flag.HIGH_PRIORITY else 0
    request = Request(Operation.ADD, ledger, entry, key, body, flags, txn=txn, priority=priority)
    ids = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    frame = wire_v3.pack_add(varint(txn), ids, key, body, flags)
    assert frame == wire_v3.encode_request(request)
    assert wire_v3.decode_request(frame[4:]) == request


@given(st.integers(0, 2**64 - 1), i64, i64)
def test_the_packed_read_is_the_protobuf_read(txn: int, ledger: int, entry: int) -> None:
    ids = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    assert wire_v3.pack_read(varint(txn), ids) == wire_v3.encode_request(
        Request(Operation.READ, ledger, entry, txn=txn)
    )


@given(
    st.integers(0, 2**64 - 1), i64, i64, st.none() | st.binary(max_size=300), st.none() | i64, st.sampled_from(Status)
)
def test_packed_replies_are_the_protobuf_replies(
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


@given(st.binary(max_size=200), st.sampled_from(sorted(CODECS)))
def test_any_bytes_decode_or_are_bad_bytes(body: bytes, protocol: int) -> None:
    for decode in (CODECS[protocol].decode_request, CODECS[protocol].decode_reply):
        with contextlib.suppress(BadBytes):
            decode(body)


@given(st.sampled_from(FRAMES), st.data())
def test_damaged_frames_decode_or_are_bad_bytes(frame: Frame, data: st.DataObject) -> None:
    body = bytearray(frame.data[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    for decode in (CODECS[frame.protocol].decode_request, CODECS[frame.protocol].decode_reply):
        with contextlib.suppress(BadBytes):
            decode(bytes(body))


@pytest.mark.parametrize("body", ["", "02", "0204000000", "0202000000", "02010000" + "00" * 35, "00000009"])
def test_v2_bodies_that_close_the_connection(body: str) -> None:
    with pytest.raises(BadBytes):
        wire_v2.decode_request(bytes.fromhex(body))


def test_unknown_state_never_goes_out_on_v2() -> None:
    reply = Reply(0, Status.UNKNOWN_LEDGER_STATE, 7, 42, operation=Operation.READ, version=2)
    assert wire_v2.decode_reply(wire_v2.encode_reply(reply)[4:]).status == Status.IO_ERROR
