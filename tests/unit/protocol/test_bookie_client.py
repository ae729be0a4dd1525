"""The client's side of a connection: its frames are Java's, and its replies find their requests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import Flag, Operation, Reply, Request
from bkctl.errors import BadBytes, Corrupt, UsageError
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.protocol.bookie_server import ServerConversation, encode_add_replies, encode_read_replies
from tests.unit.golden_wire import FOLDER, Frame, frames

CODECS = {2: wire_v2, 3: wire_v3}
KEY = bytes(range(20))


def sessions() -> dict[str, list[Frame]]:
    found: dict[str, list[Frame]] = {}
    for path in sorted(FOLDER.glob("*_v*.jsonl")) + sorted(FOLDER.glob("v*.jsonl")):
        bookies = [json.loads(line).get("bookie") for line in path.read_text().splitlines() if '"hex"' in line]
        for bookie, frame in zip(bookies, frames(path.name), strict=True):
            found.setdefault(f"{path.name}/{bookie}/{frame.connection}", []).append(frame)
    return found


SESSIONS = sessions()


def say(conversation: BookieConversation, r: Request) -> tuple[int, bytes]:
    """The same request, through the conversation's methods."""
    key = r.master_key or b""
    match r.operation:
        case Operation.ADD:
            return conversation.add(r.ledger_id, r.entry_id, key, r.body or b"", r.flags)
        case Operation.READ if r.previous_lac is not None:
            piggyback = bool(r.flags & Flag.PIGGYBACK)
            return conversation.long_poll(
                r.ledger_id, r.previous_lac, r.timeout_ms or 0, r.entry_id, piggyback=piggyback
            )
        case Operation.READ:
            return conversation.read(r.ledger_id, r.entry_id, r.flags, r.master_key)
        case Operation.BATCH_READ:
            return conversation.batch_read(r.ledger_id, r.entry_id, r.count_max, r.size_max, r.flags, r.master_key)
        case Operation.WRITE_LAC:
            return conversation.write_lac(r.ledger_id, r.lac, key, r.body or b"")
        case Operation.READ_LAC:
            return conversation.read_lac(r.ledger_id)
        case Operation.FORCE:
            return conversation.force(r.ledger_id)
        case Operation.INFO:
            return conversation.info()
        case _:
            assert r.operation == Operation.LIST_ENTRIES
            return conversation.list_entries(r.ledger_id)


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
@pytest.mark.parametrize("cut", ["whole", "byte by byte", "trailing"])
def test_a_captured_session_said_again(session: list[Frame], cut: str) -> None:
    protocol = session[0].protocol
    conversation = BookieConversation(protocol)
    kept = 0
    for index, frame in enumerate(session):
        if frame.from_client:
            request = CODECS[protocol].decode_request(frame.data[4:])
            if request.txn:
                conversation._next_token = request.txn
            _, said = say(conversation, request)
            assert CODECS[protocol].decode_request(said[4:]) == request
            if "4.18" not in frame.file:
                assert said == frame.data
            continue
        if cut == "byte by byte":
            replies = [r for byte in frame.data[kept:] for r in conversation.receive(bytes([byte]))]
        elif cut == "trailing" and index + 1 < len(session) and not session[index + 1].from_client:
            replies = conversation.receive(frame.data[kept:] + session[index + 1].data[:5])
        else:
            replies = conversation.receive(frame.data[kept:])
        kept = 5 if cut == "trailing" and index + 1 < len(session) and not session[index + 1].from_client else 0
        expected = CODECS[protocol].decode_reply(frame.data[4:])
        (reply,) = replies
        assert reply._replace(token=0) == expected._replace(token=0)
    unanswered = sum(f.from_client for f in session) * 2 - len(session)
    assert len(conversation.open_tokens()) == unanswered


@pytest.mark.parametrize("version", [2, 3])
def test_many_adds_are_one_buffer_and_their_replies_come_in_any_order(version: int) -> None:
    client, server = BookieConversation(version), ServerConversation()
    entries = [(n, (5).to_bytes(8, "big") + n.to_bytes(8, "big") + bytes(24 + n)) for n in range(300)]
    tokens, data = client.add_many(5, KEY, entries)
    (batch,) = server.feed(data)
    assert [(a[0], a[1], a[3]) for a in batch.adds] == [(5, n, body) for n, body in entries]
    assert list(tokens) == client.open_tokens()
    replies = client.receive(encode_add_replies(batch.adds[::-1], Status.OK))
    assert [(r.token, r.status, r.ledger_id, r.entry_id) for r in replies] == [
        (tokens[n], Status.OK, 5, n) for n in reversed(range(300))
    ]
    assert client.open_tokens() == []


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("status", list(Status))
def test_refused_adds_and_reads_carry_their_status(version: int, status: Status) -> None:
    client, server = BookieConversation(version), ServerConversation()
    add, add_frame = client.add(5, 1, KEY, (5).to_bytes(8, "big") + (1).to_bytes(8, "big") + bytes(30))
    read, read_frame = client.read(5, 1)
    (batch,) = server.feed(add_frame + read_frame)
    data = encode_add_replies(batch.adds, status)
    body = b"entry" if status == Status.OK else None
    data += b"".join(encode_read_replies([(status, body, batch.reads[0][2])], lambda _: -1))
    expected = Status.IO_ERROR if version == 2 and status == Status.UNKNOWN_LEDGER_STATE else status
    replies = {r.token: r for r in client.receive(data)}
    assert replies[add].status == expected
    assert replies[read].status == expected
    assert replies[read].body == body
    assert replies[read].max_lac == (-1 if version == 3 and body else None)


def test_equal_v2_requests_are_answered_oldest_first_and_late_replies_are_dropped() -> None:
    client = BookieConversation(2)
    first, _ = client.read(1, 2)
    second, _ = client.read(1, 2)
    answer = wire_v2.encode_reply(Reply(0, 0, 1, 2, b"x", operation=Operation.READ, version=2))
    assert [r.token for r in client.receive(answer * 3)] == [first, second]
    third, _ = client.read(1, 2)
    client.forget([third])
    assert client.open_tokens() == []
    assert client.receive(answer) == []


def test_a_late_v3_reply_is_dropped() -> None:
    client = BookieConversation(3)
    token, _ = client.read(1, 2)
    client.forget([token])
    assert client.receive(wire_v3.encode_reply(Reply(token, 0, 1, 2, b"x", operation=Operation.READ))) == []


def test_what_a_protocol_does_not_have() -> None:
    v2 = BookieConversation(2)
    for attempt in (
        lambda: v2.read_lac(1),
        lambda: v2.force(1),
        lambda: v2.info(),
        lambda: v2.long_poll(1, 0, 100),
        lambda: v2.add(1, 1, KEY, b"", Flag.DEFERRED_SYNC),
        lambda: BookieConversation(3).batch_read(1, 0, 10, 1000),
        lambda: BookieConversation(4),
    ):
        with pytest.raises(UsageError):
            attempt()
    assert v2.open_tokens() == []


def test_a_frame_over_the_limit_is_refused_from_its_length() -> None:
    for version in (2, 3):
        with pytest.raises(Corrupt):
            BookieConversation(version, 1000).receive((997).to_bytes(4, "big"))
        assert BookieConversation(version, 1000).receive((996).to_bytes(4, "big")) == []


@given(st.sampled_from([2, 3]), st.lists(st.binary(max_size=80), max_size=5))
def test_garbage_raises_bad_bytes_only(version: int, pieces: list[bytes]) -> None:
    client = BookieConversation(version)
    with contextlib.suppress(BadBytes):
        for piece in pieces:
            client.receive(piece)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.ADD])
@pytest.mark.parametrize("status", [Status.OK, Status.NO_LEDGER])
def test_a_reply_whose_txn_id_is_an_overlong_varint_answers_its_request(operation: Operation, status: Status) -> None:
    client = BookieConversation(3)
    client._next_token = 5
    token, _ = client.read(1, 2) if operation == Operation.READ else client.add(1, 2, KEY, bytes(30))
    body = b"x" * 40 if operation == Operation.READ and status == Status.OK else b""
    short = wire_v3.encode_reply(Reply(5, status, 1, 2, body, operation=operation))[4:]
    at = short.index(b"\x18\x05")
    overlong = short[:1] + bytes([short[1] + 1]) + short[2:at] + b"\x18\x85\x00" + short[at + 2 :]
    assert wire_v3.decode_reply(overlong).token == 5
    (reply,) = client.receive(len(overlong).to_bytes(4, "big") + overlong)
    assert (reply.token, reply.status, reply.body or b"") == (token, status, body)
    assert client.open_tokens() == []


@given(st.sampled_from([f for f in frames() if not f.from_client]), st.data())
def test_a_damaged_reply_is_taken_as_the_codec_takes_it(frame: Frame, data: Any) -> None:
    body = bytearray(frame.data[4:])
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    client = BookieConversation(frame.protocol)
    damaged = len(body).to_bytes(4, "big") + bytes(body)
    try:
        expected = CODECS[frame.protocol].decode_reply(bytes(body))
    except BadBytes:
        with pytest.raises(BadBytes):
            client.receive(damaged)
        return
    if frame.protocol == 3:
        client._next_token = expected.token
        client.read(expected.ledger_id, expected.entry_id)
        (reply,) = client.receive(damaged)
        assert reply._replace(operation=expected.operation) == expected


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("flags", [0, int(Flag.HIGH_PRIORITY)])
def test_many_reads_are_the_reads_one_by_one(version: int, flags: int) -> None:
    one, many = BookieConversation(version), BookieConversation(version)
    single = [one.read(7, entry_id, flags) for entry_id in (3, 9, 3)]
    tokens, frames = many.read_many(7, (3, 9, 3), flags)
    assert (list(tokens), frames) == ([token for token, _ in single], b"".join(frame for _, frame in single))
    assert many.open_tokens() == one.open_tokens()


@given(st.integers(1, 2**29), st.lists(st.integers(-1, 2**40), min_size=1), st.integers(0, 2**40))
def test_many_reads_of_any_ids_are_the_reads_one_by_one(token: int, entry_ids: list[int], ledger_id: int) -> None:
    one, many = BookieConversation(3), BookieConversation(3)
    one._next_token = many._next_token = token
    single = [one.read(ledger_id, entry_id) for entry_id in entry_ids]
    tokens, frames = many.read_many(ledger_id, entry_ids)
    assert (list(tokens), frames) == ([token for token, _ in single], b"".join(frame for _, frame in single))
    assert many.open_tokens() == one.open_tokens()


EDGES = [0, 1, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 2**21 - 1, 2**21]


@given(
    st.sampled_from([1, 125, 16_380]),
    st.lists(
        st.tuples(st.sampled_from(EDGES), st.sampled_from([0, 5, 1060]), st.sampled_from([-1, 7, 300])),
        min_size=2, max_size=12,
    ),
    st.data(),
)  # fmt: skip
def test_answers_that_look_like_the_last_one_are_taken_as_the_codec_takes_them(
    token: int, answers: list[tuple[int, int, int]], data: Any
) -> None:
    client = BookieConversation(3)
    client._next_token = token
    tokens, _ = client.read_many(7, [entry_id for entry_id, _, _ in answers])
    replies = [
        Reply(token, 0, 7, entry_id, bytes([token % 256]) * size, lac, operation=Operation.READ)
        for token, (entry_id, size, lac) in zip(tokens, answers, strict=True)
    ]
    framed = [wire_v3.encode_reply(reply) for reply in replies]
    at = data.draw(st.integers(1, len(framed) - 1))
    damaged = bytearray(framed[at])
    damaged[data.draw(st.integers(4, min(40, len(damaged) - 1)))] = data.draw(st.integers(0, 255))
    alone = BookieConversation(3)  # sees nothing but the damaged answer, so it has no other to compare it with
    alone._next_token = token
    alone.read_many(7, [entry_id for entry_id, _, _ in answers])
    for frame, reply in zip(framed[:at], replies, strict=False):
        assert [r._replace(operation=Operation.READ) for r in client.receive(frame)] == [reply]
        alone.forget([reply.token])
    try:
        expected = alone.receive(bytes(damaged))
    except BadBytes:
        with pytest.raises(BadBytes):
            client.receive(bytes(damaged))
        return
    assert client.receive(bytes(damaged)) == expected
    assert client.open_tokens() == alone.open_tokens()


def test_an_entry_id_written_otherwise_is_not_taken_for_the_one_asked_for() -> None:
    client = BookieConversation(3)
    tokens, _ = client.read_many(7, [128, 128])
    first, second = (wire_v3.encode_reply(Reply(t, 0, 7, 128, b"", -1, operation=Operation.READ)) for t in tokens)
    assert len(client.receive(first)) == 1
    with pytest.raises(Corrupt):
        client.receive(second.replace(b"\x18\x80\x01", b"\x18\x00\x01"))


@pytest.mark.parametrize("version", [2, 3])
def test_reads_of_many_ledgers_are_the_reads_one_by_one(version: int) -> None:
    one, many = BookieConversation(version), BookieConversation(version)
    entries = [(7, 3), (8, 3), (7, 3), (2**40, 0)]
    single = [one.read(ledger_id, entry_id) for ledger_id, entry_id in entries]
    tokens, frames = many.read_each(entries)
    assert (list(tokens), frames) == ([token for token, _ in single], b"".join(frame for _, frame in single))
    assert many.open_tokens() == one.open_tokens() == [1, 2, 3, 4]
