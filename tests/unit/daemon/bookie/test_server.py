"""The bookie's port over real sockets and real files: Java's hand-made frames, long polls, back-pressure, garbage."""

from __future__ import annotations

import asyncio
import itertools
import struct
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie import server as server_module

from bkctl.codec import wire_v2
from bkctl.codec.wire import FRAME_SIZE_MAX, Operation, Request
from bkctl.model.status import Status
from tests.unit.daemon.bookie.peers import KEY, PATIENCE_S, Peer, Running, entry, served, until
from tests.unit.golden_wire import FOLDER, frames, raw_cases


def whole(sent: Any) -> bytes:
    """Bytes of a hand-made frame; long ones are stored as their first bytes, and continue with "x"."""
    if isinstance(sent, str):
        return bytes.fromhex(sent)
    first = bytes.fromhex(sent["first"])
    return first + b"x" * (sent["bytes"] - len(first))


JAVA_DOES_NOT_ANSWER = "v3 list, known ledger"  # DbLedgerStorage has no such list; ours has


def test_every_handcrafted_frame_gets_the_reply_of_java(tmp_path: Path) -> None:
    async def replay(running: Running) -> None:
        for case in raw_cases():
            if case["case"] == JAVA_DOES_NOT_ANSWER:
                continue
            peer = await running.connect()
            expected = [whole(reply["hex"]) for reply in case["replies"]]
            got = []
            for index, sent in enumerate(case["sent"]):
                peer.writer.write(whole(sent))
                if index < len(expected):
                    head = await asyncio.wait_for(peer.reader.readexactly(4), PATIENCE_S)
                    body = await asyncio.wait_for(peer.reader.readexactly(int.from_bytes(head, "big")), PATIENCE_S)
                    got.append(head + body)
            for mine, java in zip(got, expected, strict=True):
                if len(java) > FRAME_SIZE_MAX - 100:  # of the largest only the start and the size were kept
                    assert (len(mine), mine[:128]) == (len(java), java[:128]), case["case"]
                else:
                    assert mine.hex() == java.hex(), case["case"]
            if case["closed"]:
                assert await peer.closed(), case["case"]
            elif got:
                peer.writer.write(whole(case["sent"][-1]))
                assert len(await asyncio.wait_for(peer.reader.readexactly(4), PATIENCE_S)) == 4, case["case"]
            peer.writer.close()

    served(tmp_path, replay)


SESSIONS = sorted(path.name for path in FOLDER.glob("v*.jsonl"))


@pytest.mark.parametrize("file", SESSIONS)
def test_requests_of_javas_client_get_the_replies_of_javas_bookie(tmp_path: Path, file: str) -> None:
    async def replay(running: Running) -> None:
        said = frames(file)
        peers: dict[int, Peer] = {}
        answered = 0
        for asked, answer in itertools.pairwise(said):
            if not asked.from_client or answer.from_client:
                continue  # the list of entries that DbLedgerStorage never sends
            peer = peers.get(asked.connection) or await running.connect()
            peers[asked.connection] = peer
            peer.writer.write(asked.data)
            head = await asyncio.wait_for(peer.reader.readexactly(4), PATIENCE_S)
            body = await asyncio.wait_for(peer.reader.readexactly(int.from_bytes(head, "big")), PATIENCE_S)
            if "getBookieInfoResponse" in answer.decoded:  # the sizes are those of another disk
                assert body.startswith(answer.data[4:16])
            else:
                assert (head + body).hex() == answer.data.hex()
            answered += 1
        assert answered >= len(said) // 2 - 1

    served(tmp_path, replay)


@pytest.mark.parametrize("version", [2, 3])
def test_adds_in_one_buffer_are_all_answered_and_readable(tmp_path: Path, version: int) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect(version)
        bodies = {n: entry(7, n, b"x" * (n % 300)) for n in range(2000)}
        tokens, data = peer.conversation.add_many(7, KEY, bodies.items())
        peer.writer.write(data)
        for token in tokens:
            assert (await peer.reply(token)).status == Status.OK
        asked = {n: peer.conversation.read(7, n) for n in bodies}
        peer.writer.write(b"".join(frame for _, frame in asked.values()))
        for n, (token, _) in asked.items():
            reply = await peer.reply(token)
            assert (reply.status, reply.entry_id, reply.body) == (Status.OK, n, bodies[n])
            assert reply.max_lac == (1998 if version == 3 else None)
        last = await peer.ask(peer.conversation.read(7, -1))
        assert (last.entry_id, last.body) == (-1, bodies[1999])

    served(tmp_path, run)


def test_garbage_ends_its_connection_after_the_answers_before_it_and_no_other(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        good, bad = await running.connect(2), await running.connect(2)
        await good.ask(good.conversation.add(7, 0, KEY, entry(7, 0)))
        token, frame = bad.conversation.read(7, 0)
        bad.writer.write(frame + b"\xff\xff\xff\xff")
        assert (await bad.reply(token)).body == entry(7, 0)
        assert await bad.closed()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x00", b"\x7f" * 100):
            peer = await running.connect()
            peer.writer.write(garbage)
            assert await peer.closed()
        assert (await good.ask(good.conversation.read(7, 0))).body == entry(7, 0)

    served(tmp_path, run)


def test_a_client_that_does_not_read_is_not_read_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WRITE_BUFFER_HIGH", 64 * 1024)
    monkeypatch.setattr(server_module, "WRITE_BUFFER_LOW", 16 * 1024)
    monkeypatch.setattr(server_module, "READ_BYTES_MAX", 256 * 1024)

    async def run(running: Running) -> None:
        peer = await running.connect(2)
        say = peer.conversation
        body = entry(7, 0, b"x" * 100_000)
        await peer.ask(say.add(7, 0, KEY, body))
        (connection,) = running.server.connections
        asked = [say.read(7, 0) for _ in range(500)]
        peer.writer.write(b"".join(frame for _, frame in asked))
        await until(lambda: not connection.reading)
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_size() <= 64 * 1024 + 8 * len(body)
        assert connection._reads
        for token, _ in asked:
            assert (await peer.reply(token)).body == body
        assert (await peer.ask(say.read(7, 0))).body == body
        assert connection.reading

    served(tmp_path, run)


def test_adds_beyond_the_bounds_wait_in_the_socket_and_all_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "ADD_BYTES_PER_CONNECTION_MAX", 10_000)
    monkeypatch.setattr(server_module, "ADD_BYTES_MAX", 30_000)

    async def run(running: Running) -> None:
        peers = [await running.connect(2 + n % 2) for n in range(6)]
        waiting = []
        for number, peer in enumerate(peers):
            bodies = [(n, entry(number, n, b"x" * 1000)) for n in range(400)]
            tokens, data = peer.conversation.add_many(number, KEY, bodies)
            peer.writer.write(data)
            waiting += [(peer, token) for token in tokens]
        running.server.throttle(True)
        running.server.throttle(False)
        for peer, token in waiting:
            assert (await peer.reply(token)).status == Status.OK
        assert running.server.add_bytes == 0

    served(tmp_path, run)


def test_connections_above_the_bound_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 2)

    async def run(running: Running) -> None:
        first = await running.connect()
        second = await running.connect()
        for peer in (first, second):
            assert (await peer.ask(peer.conversation.read(7, 0))).status == Status.NO_LEDGER
        assert await (await running.connect()).closed()
        assert running.server.refused_connections == 1
        assert (await first.ask(first.conversation.read(7, 0))).status == Status.NO_LEDGER

    served(tmp_path, run)


def test_a_client_that_disconnects_in_a_frame_does_not_affect_others(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        for cut in (3, 30, 70):
            peer = await running.connect(2)
            _, frame = peer.conversation.add(7, cut, KEY, entry(7, cut))
            peer.writer.write(frame + frame[:cut])
            peer.writer.close()
            await peer.writer.wait_closed()
        await until(lambda: not running.server.connections)
        peer = await running.connect(2)
        assert (await peer.ask(peer.conversation.read(7, 70))).status == Status.OK

    served(tmp_path, run)


def test_v2_versions_are_echoed(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect(2)
        await peer.ask(peer.conversation.add(7, 0, KEY, entry(7, 0)))
        for version in (0, 1):
            request = Request(Operation.ADD, 7, 1, KEY, entry(7, 1), protocol=2, version=version)
            peer.writer.write(wire_v2.encode_request(request))
            answer = await asyncio.wait_for(peer.reader.readexactly(28), PATIENCE_S)
            assert answer == struct.pack(">IIIqq", 24, wire_v2.header(1, 0, version), 0, 7, 1)

    served(tmp_path, run)
