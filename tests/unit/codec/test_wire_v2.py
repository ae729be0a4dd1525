"""Wire protocol v2 against captured frames and worked bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import wire_v2
from bkctl.codec.wire import Operation, Reply, Request
from bkctl.errors import BadBytes
from bkctl.model.status import Status
from tests.unit.codec.wire_frames import ENTRY, KEY, SECOND, captured, damaged, frame_name, from_text
from tests.unit.golden_wire import Frame

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
]  # fmt: skip
WORKED_REPLIES = [
    (Reply(0, 0, 7, 42, operation=2, version=2), "00000018 02010000 00000000 0000000000000007 000000000000002a"),
    (Reply(0, 104, 7, 42, operation=2, version=2), "00000018 02010000 00000068 0000000000000007 000000000000002a"),
    (Reply(0, 0, 7, 42, ENTRY, operation=1, version=2),
     "00000041 02020000 00000000 0000000000000007 000000000000002a <ENT>"),
    (Reply(0, 2, 7, 42, operation=1, version=2), "00000018 02020000 00000002 0000000000000007 000000000000002a"),
    (Reply(9, 0, 7, 42, extra=[ENTRY, SECOND], operation=12, version=2),
     "0000007a 02070000 00000000 0000000000000007 000000000000002a 0000000000000009 00000029 <ENT> 00000029 <E43>"),
    (Reply(9, 1, 7, 42, extra=[], operation=12, version=2),
     "00000020 02070000 00000001 0000000000000007 000000000000002a 0000000000000009"),
    (Reply(0, 0, body=b"", extra="AuthDisabledPlugin", operation=5, version=2),
     "0000001a 02030000 0a12 4175746844697361626c6564506c7567696e 1200"),
]  # fmt: skip


@pytest.mark.parametrize("frame", captured(2, from_client=True), ids=frame_name)
def test_every_captured_request_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    request = wire_v2.decode_request(frame.data[4:])
    assert wire_v2.encode_request(request) == frame.data
    assert (request.refused, request.protocol) == (None, 2)


@pytest.mark.parametrize("frame", captured(2, from_client=False), ids=frame_name)
def test_every_captured_reply_decodes_and_encodes_to_the_same_bytes(frame: Frame) -> None:
    reply = wire_v2.decode_reply(frame.data[4:])
    assert wire_v2.encode_reply(reply) == frame.data
    decoded = frame.decoded
    if "code" in decoded:
        assert (reply.status, reply.ledger_id) == (decoded["code"], decoded["ledgerId"])


def test_there_are_captured_frames_of_every_operation() -> None:
    seen = {wire_v2.decode_request(frame.data[4:]).operation for frame in captured(2, from_client=True)}
    assert seen >= {Operation.ADD, Operation.READ, Operation.BATCH_READ}
    assert len(captured(2, from_client=True)) >= 77
    assert len(captured(2, from_client=False)) >= 95


@pytest.mark.parametrize(("request_", "text"), WORKED)
def test_worked_requests(request_: Request, text: str) -> None:
    assert wire_v2.encode_request(request_) == from_text(text)
    assert wire_v2.decode_request(from_text(text)[4:]) == request_


@pytest.mark.parametrize(("reply", "text"), WORKED_REPLIES)
def test_worked_replies(reply: Reply, text: str) -> None:
    assert wire_v2.encode_reply(reply) == from_text(text)
    assert wire_v2.decode_reply(from_text(text)[4:]) == reply


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_bad_bytes(body: bytes) -> None:
    for decode in (wire_v2.decode_request, wire_v2.decode_reply):
        with contextlib.suppress(BadBytes):
            decode(body)


@given(st.sampled_from(captured(2, from_client=True) + captured(2, from_client=False)), st.data())
def test_damaged_frames_decode_or_are_bad_bytes(frame: Frame, data: st.DataObject) -> None:
    body = damaged(frame, data)
    for decode in (wire_v2.decode_request, wire_v2.decode_reply):
        with contextlib.suppress(BadBytes):
            decode(body)


@pytest.mark.parametrize("body", ["", "02", "0204000000", "0202000000", "02010000" + "00" * 35, "00000009"])
def test_a_short_or_unknown_request_is_bad_bytes(body: str) -> None:
    with pytest.raises(BadBytes):
        wire_v2.decode_request(bytes.fromhex(body))


def test_an_unknown_ledger_state_is_sent_as_an_io_error() -> None:
    reply = Reply(0, Status.UNKNOWN_LEDGER_STATE, 7, 42, operation=Operation.READ, version=2)
    assert wire_v2.decode_reply(wire_v2.encode_reply(reply)[4:]).status == Status.IO_ERROR


@pytest.mark.parametrize("missing", [1, 4, 40, 41, 44])
def test_a_truncated_batch_reply_is_bad_bytes(missing: int) -> None:
    reply = Reply(9, 0, 7, 42, extra=[ENTRY, SECOND], operation=Operation.BATCH_READ, version=2)
    body = wire_v2.encode_reply(reply)[4:]
    assert wire_v2.decode_reply(body) == reply
    with pytest.raises(BadBytes):
        wire_v2.decode_reply(body[:-missing])


def test_a_request_of_a_later_version_is_refused_with_bad_version() -> None:
    frame = wire_v2.encode_request(Request(Operation.READ, 7, 42, protocol=2, version=3))
    assert wire_v2.decode_request(frame[4:]).refused == Status.BAD_VERSION


def test_an_add_without_a_last_add_confirmed_is_refused_with_bad_request() -> None:
    frame = wire_v2.encode_request(Request(Operation.ADD, 7, 42, KEY, ENTRY[:23], protocol=2, version=2))
    assert wire_v2.decode_request(frame[4:]).refused == Status.BAD_REQUEST
