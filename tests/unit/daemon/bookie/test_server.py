"""The bookie's port over real sockets and real files: Java's hand-made frames, long polls, back-pressure, garbage."""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie import server as server_module
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import memory_index
from bkdaemon.bookie.server import BookieServer

from bkctl.codec import availability, wire_v2
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry, encode_lac
from bkctl.codec.wire import FRAME_SIZE_MAX, Flag, Operation, Reply, Request
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.world import SystemDisk, SystemFile, World, real_world
from tests.unit.golden_wire import FOLDER, frames, raw_cases

KEY = bytes(range(1, 21))
DIGEST = digest_for(DigestType.CRC32C)
PATIENCE_S = 20


class Peer:
    """A plain client: one connection, replies by token."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader, self.writer = reader, writer
        self.conversation = BookieConversation(version, frame_size_max=FRAME_SIZE_MAX + 4096)
        self.replies: dict[int, Reply] = {}

    async def ask(self, question: tuple[int, bytes]) -> Reply:
        """Sends one request and waits for its reply."""
        self.writer.write(question[1])
        return await self.reply(question[0])

    async def reply(self, token: int) -> Reply:
        """Waits for the reply to a request that was sent."""
        while token not in self.replies:
            data = await asyncio.wait_for(self.reader.read(1 << 20), PATIENCE_S)
            assert data, "the bookie closed the connection"
            self.replies |= {reply.token: reply for reply in self.conversation.receive(data)}
        return self.replies.pop(token)

    async def closed(self) -> bool:
        """True when the bookie ends the connection; everything before is thrown away."""
        try:
            while await asyncio.wait_for(self.reader.read(1 << 20), PATIENCE_S):
                pass
        except ConnectionResetError:
            pass
        return True


class House:
    """A bookie with its server, and the connections made to it."""

    def __init__(self, server: BookieServer) -> None:
        self.server = server
        self.bookie = server.bookie
        self._peers: list[Peer] = []

    async def connect(self, version: int = 3) -> Peer:
        """A new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 20)
        self._peers.append(Peer(reader, writer, version))
        return self._peers[-1]

    async def leave(self) -> None:
        """Closes all connections from this side."""
        for peer in self._peers:
            peer.writer.close()


def served(
    path: Path, test: Callable[[House], Awaitable[None]], *, world: World | None = None, **settings: Any
) -> None:
    """Runs a test against a bookie in a fresh directory."""

    async def run() -> None:
        directories = {"journal_directories": (str(path / "journal"),), "ledger_dirs": (str(path / "ledgers"),)}
        for (folder,) in directories.values():
            (Path(folder) / "current").mkdir(parents=True, exist_ok=True)
        config = BookieConfig(**{**directories, "index_directories": (), **settings})
        doors = world or real_world()
        bookie = Bookie(config, doors, memory_index(doors.disk))
        await bookie.start()
        server = BookieServer(
            bookie,
            doors,
            frame_size_max=config.frame_size_max,
            unfinished_bytes_max=config.unfinished_frame_bytes_max,
            stall_timeout_s=config.unfinished_frame_timeout_ms / 1000,
        )
        bookie.on_throttle = server.throttle
        await server.start("127.0.0.1", 0)
        house = House(server)
        try:
            await asyncio.wait_for(test(house), 120)
        finally:
            await house.leave()
            await server.stop()
            await bookie.stop()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until a condition holds."""
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


def entry(ledger_id: int, entry_id: int, payload: bytes = b"payload", lac: int | None = None) -> bytes:
    return encode_entry(ledger_id, entry_id, entry_id - 1 if lac is None else lac, 100, payload, DIGEST)


def whole(sent: Any) -> bytes:
    """Bytes of a hand-made frame; the long ones are kept as their start and go on with "x"."""
    if isinstance(sent, str):
        return bytes.fromhex(sent)
    first = bytes.fromhex(sent["first"])
    return first + b"x" * (sent["bytes"] - len(first))


JAVA_DOES_NOT_ANSWER = "v3 list, known ledger"  # DbLedgerStorage has no such list; ours has


def test_every_hand_made_frame_gets_javas_answer(tmp_path: Path) -> None:
    async def replay(house: House) -> None:
        for case in raw_cases():
            if case["case"] == JAVA_DOES_NOT_ANSWER:
                continue
            peer = await house.connect()
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
def test_what_javas_client_said_gets_what_javas_bookie_answered(tmp_path: Path, file: str) -> None:
    async def replay(house: House) -> None:
        said = frames(file)
        peers: dict[int, Peer] = {}
        answered = 0
        for asked, answer in itertools.pairwise(said):
            if not asked.from_client or answer.from_client:
                continue  # the list of entries that DbLedgerStorage never sends
            peer = peers.get(asked.connection) or await house.connect()
            peers[asked.connection] = peer
            peer.writer.write(asked.data)
            head = await asyncio.wait_for(peer.reader.readexactly(4), PATIENCE_S)
            body = await asyncio.wait_for(peer.reader.readexactly(int.from_bytes(head, "big")), PATIENCE_S)
            if "getBookieInfoResponse" in answer.decoded:  # the figures are those of another disk
                assert body.startswith(answer.data[4:16])
            else:
                assert (head + body).hex() == answer.data.hex()
            answered += 1
        assert answered >= len(said) // 2 - 1

    served(tmp_path, replay)


@pytest.mark.parametrize("version", [2, 3])
def test_adds_in_one_buffer_are_all_answered_and_readable(tmp_path: Path, version: int) -> None:
    async def run(house: House) -> None:
        peer = await house.connect(version)
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


@pytest.mark.parametrize("version", [2, 3])
def test_fencing(tmp_path: Path, version: int) -> None:
    async def run(house: House) -> None:
        writer, recoverer = await house.connect(version), await house.connect(version)
        say, ask = writer.conversation, recoverer.conversation
        assert (await writer.ask(say.add(7, 0, KEY, entry(7, 0)))).status == Status.OK
        assert (await recoverer.ask(ask.read(7, -1, Flag.FENCE, b"wrong key of 20 byte"))).status == Status.UNAUTHORIZED
        answer = await recoverer.ask(ask.read(7, -1, Flag.FENCE, KEY))
        assert (answer.status, answer.body, answer.max_lac) == (Status.OK, entry(7, 0), None)
        assert (await writer.ask(say.add(7, 1, KEY, entry(7, 1)))).status == Status.FENCED
        flags = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY
        assert (await recoverer.ask(ask.add(7, 1, KEY, entry(7, 1), flags))).status == Status.OK
        # Fencing makes the ledger: where nothing is stored the answer is "no entry", never "no ledger".
        assert (await recoverer.ask(ask.read(8, -1))).status == Status.NO_LEDGER
        assert (await recoverer.ask(ask.read(8, -1, Flag.FENCE, KEY))).status == Status.NO_ENTRY
        assert (await writer.ask(say.add(8, 0, KEY, entry(8, 0)))).status == Status.FENCED

    served(tmp_path, run)


def test_batch_reads_keep_to_count_bytes_and_the_end(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        peer = await house.connect(2)
        say = peer.conversation
        bodies = [entry(7, n, b"x" * 100) for n in range(600)]
        tokens, data = say.add_many(7, KEY, enumerate(bodies))
        peer.writer.write(data)
        for token in tokens:
            await peer.reply(token)
        size = len(bodies[0])

        async def batch(first: int, count: int, bytes_: int, flags: int = 0) -> list[bytes]:
            reply = await peer.ask(say.batch_read(7, first, count, bytes_, flags, KEY if flags else None))
            assert reply.status == Status.OK
            return list(reply.extra)

        assert await batch(0, 5, 1 << 20) == bodies[:5]
        assert await batch(0, 0, 1 << 20) == bodies
        assert await batch(590, 100, 1 << 20) == bodies[590:]
        assert await batch(3, 100, 1) == bodies[3:4]
        assert await batch(3, 100, 36 + 2 * (size + 4)) == bodies[3:5]
        assert await batch(3, 100, 35 + 2 * (size + 4)) == bodies[3:4]
        assert (await peer.ask(say.batch_read(7, 600, 5, 1000))).status == Status.NO_ENTRY
        assert (await peer.ask(say.batch_read(8, 0, 5, 1000))).status == Status.NO_LEDGER
        assert await batch(0, 2, 1 << 20, Flag.FENCE) == bodies[:2]
        assert (await peer.ask(say.add(7, 600, KEY, entry(7, 600)))).status == Status.FENCED

    served(tmp_path, run)


def test_explicit_lacs_and_forces(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        peer = await house.connect()
        say = peer.conversation
        assert (await peer.ask(say.read_lac(7))).status == Status.NO_ENTRY
        packet = encode_lac(7, 5, DIGEST)
        assert (await peer.ask(say.write_lac(7, 5, KEY, packet))).status == Status.OK
        alone = await peer.ask(say.read_lac(7))
        assert (alone.status, alone.extra) == (Status.IO_ERROR, (packet, None))
        await peer.ask(say.add(7, 6, KEY, entry(7, 6)))
        both = await peer.ask(say.read_lac(7))
        assert (both.status, both.extra) == (Status.OK, (packet, entry(7, 6)))
        assert (await peer.ask(say.read(7, 6))).max_lac == 5
        assert (await peer.ask(say.write_lac(7, 5, b"wrong", packet))).status == Status.UNAUTHORIZED
        assert (await peer.ask(say.write_lac(7, 5, KEY, b"short"))).status == Status.BAD_REQUEST
        assert (await peer.ask(say.force(7))).status == Status.OK
        total, free = (await peer.ask(say.info())).extra
        assert 0 < free <= total
        listed = await peer.ask(say.list_entries(7))
        assert availability.decode(listed.body or b"") == [range(6, 7)]
        assert (await peer.ask(say.list_entries(8))).status == Status.NO_LEDGER
        assert (await peer.ask(say.add(7, 7, KEY, entry(7, 7), Flag.DEFERRED_SYNC))).status == Status.OK

    served(tmp_path, run)


def test_long_polls(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        reader, writer = await house.connect(), await house.connect()
        ask, say = reader.conversation, writer.conversation
        await writer.ask(say.add(7, 0, KEY, entry(7, 0)))
        await writer.ask(say.add(7, 1, KEY, entry(7, 1)))
        past = await reader.ask(ask.long_poll(7, -1, 60_000))
        assert (past.status, past.entry_id, past.body, past.max_lac, past.extra) == (0, 0, entry(7, 0), 0, None)
        in_vain = await reader.ask(ask.long_poll(7, 0, 1))
        assert (in_vain.status, in_vain.entry_id, in_vain.body, in_vain.max_lac) == (0, -1, None, 0)
        token, frame = ask.long_poll(7, 0, 60_000)
        reader.writer.write(frame)
        await until(lambda: bool(house.server.requests.long_polls))
        await writer.ask(say.add(7, 2, KEY, entry(7, 2)))
        woken = await reader.reply(token)
        assert (woken.status, woken.entry_id, woken.body, woken.max_lac) == (0, 1, entry(7, 1), 1)
        assert woken.extra is not None
        assert (await reader.ask(ask.long_poll(7, 0, 60_000, 5))).status == Status.BAD_REQUEST
        assert (await reader.ask(ask.long_poll(99, 0, 60_000))).status == Status.NO_LEDGER
        plain = await reader.ask(ask.long_poll(7, 1, 1, 2, piggyback=False))
        assert (plain.entry_id, plain.body, plain.max_lac) == (2, entry(7, 2), 1)

    served(tmp_path, run)


@pytest.mark.parametrize("event", ["fence", "explicit LAC", "disconnect"])
def test_what_ends_a_long_poll(tmp_path: Path, event: str) -> None:
    async def run(house: House) -> None:
        reader, other = await house.connect(), await house.connect()
        ask, say = reader.conversation, other.conversation
        await other.ask(say.add(7, 0, KEY, entry(7, 0)))
        token, frame = ask.long_poll(7, 5, 60_000)
        reader.writer.write(frame)
        await until(lambda: bool(house.server.requests.long_polls))
        if event == "fence":
            await other.ask(say.read(7, -1, Flag.FENCE, KEY))
            assert (await reader.reply(token)).max_lac == -1
        elif event == "explicit LAC":
            await other.ask(say.write_lac(7, 9, KEY, encode_lac(7, 9, DIGEST)))
            woken = await reader.reply(token)
            assert (woken.status, woken.entry_id, woken.body, woken.max_lac) == (0, -1, None, 9)
        else:
            reader.writer.close()
        await until(lambda: not house.server.requests.long_polls)

    served(tmp_path, run)


def test_garbage_ends_its_connection_after_the_answers_before_it_and_no_other(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        good, bad = await house.connect(2), await house.connect(2)
        await good.ask(good.conversation.add(7, 0, KEY, entry(7, 0)))
        token, frame = bad.conversation.read(7, 0)
        bad.writer.write(frame + b"\xff\xff\xff\xff")
        assert (await bad.reply(token)).body == entry(7, 0)
        assert await bad.closed()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x00", b"\x7f" * 100):
            peer = await house.connect()
            peer.writer.write(garbage)
            assert await peer.closed()
        assert (await good.ask(good.conversation.read(7, 0))).body == entry(7, 0)

    served(tmp_path, run)


def test_a_client_that_does_not_read_is_not_read_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WRITE_BUFFER_HIGH", 64 * 1024)
    monkeypatch.setattr(server_module, "WRITE_BUFFER_LOW", 16 * 1024)
    monkeypatch.setattr(server_module, "READ_BYTES_MAX", 256 * 1024)

    async def run(house: House) -> None:
        peer = await house.connect(2)
        say = peer.conversation
        body = entry(7, 0, b"x" * 100_000)
        await peer.ask(say.add(7, 0, KEY, body))
        (connection,) = house.server.connections
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

    async def run(house: House) -> None:
        peers = [await house.connect(2 + n % 2) for n in range(6)]
        waiting = []
        for number, peer in enumerate(peers):
            bodies = [(n, entry(number, n, b"x" * 1000)) for n in range(400)]
            tokens, data = peer.conversation.add_many(number, KEY, bodies)
            peer.writer.write(data)
            waiting += [(peer, token) for token in tokens]
        house.server.throttle(True)
        house.server.throttle(False)
        for peer, token in waiting:
            assert (await peer.reply(token)).status == Status.OK
        assert house.server.add_bytes == 0

    served(tmp_path, run)


def test_connections_beyond_the_bound_are_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 2)

    async def run(house: House) -> None:
        first = await house.connect()
        second = await house.connect()
        for peer in (first, second):
            assert (await peer.ask(peer.conversation.read(7, 0))).status == Status.NO_LEDGER
        assert await (await house.connect()).closed()
        assert house.server.refused_connections == 1
        assert (await first.ask(first.conversation.read(7, 0))).status == Status.NO_LEDGER

    served(tmp_path, run)


def test_a_client_that_leaves_in_the_middle_harms_nobody(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        for cut in (3, 30, 70):
            peer = await house.connect(2)
            _, frame = peer.conversation.add(7, cut, KEY, entry(7, cut))
            peer.writer.write(frame + frame[:cut])
            peer.writer.close()
            await peer.writer.wait_closed()
        await until(lambda: not house.server.connections)
        peer = await house.connect(2)
        assert (await peer.ask(peer.conversation.read(7, 70))).status == Status.OK

    served(tmp_path, run)


def test_a_read_only_bookie(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        peer = await house.connect()
        say = peer.conversation
        assert (await peer.ask(say.add(7, 0, KEY, entry(7, 0)))).status == Status.READ_ONLY
        assert (await peer.ask(say.write_lac(7, 1, KEY, encode_lac(7, 1, DIGEST)))).status == Status.READ_ONLY
        assert (await peer.ask(say.read(7, -1, Flag.FENCE, KEY))).status == Status.NO_ENTRY

    served(tmp_path, run, force_read_only=True)


def test_v2_versions_are_echoed(tmp_path: Path) -> None:
    async def run(house: House) -> None:
        peer = await house.connect(2)
        await peer.ask(peer.conversation.add(7, 0, KEY, entry(7, 0)))
        for version in (0, 1):
            request = Request(Operation.ADD, 7, 1, KEY, entry(7, 1), protocol=2, version=version)
            peer.writer.write(wire_v2.encode_request(request))
            answer = await asyncio.wait_for(peer.reader.readexactly(28), PATIENCE_S)
            assert answer == struct.pack(">IIIqq", 24, wire_v2.header(1, 0, version), 0, 7, 1)

    served(tmp_path, run)


class HeldDisk(SystemDisk):
    """A real disk whose syncs wait until they are let go."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def open(self, path: Path, *, create: bool = False, write: bool = False, exclusive: bool = False) -> SystemFile:
        inner = super().open(path, create=create, write=write, exclusive=exclusive)
        return HeldFile(inner, self.free)


class HeldFile(SystemFile):
    """A file of a HeldDisk."""

    __slots__ = ("_free",)

    def __init__(self, inner: SystemFile, free: threading.Event) -> None:
        super().__init__(inner._fd)
        self._free = free

    def sync(self) -> None:
        assert self._free.wait(PATIENCE_S)
        super().sync()


def test_a_fencing_read_says_nothing_before_the_fence_is_durable(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def run(house: House) -> None:
        peer = await house.connect()
        token, frame = peer.conversation.read(7, 0, Flag.FENCE, KEY)
        peer.writer.write(frame)
        plain, frame = peer.conversation.read(7, 1)
        peer.writer.write(frame)  # needs no fence, and is looked up behind the fencing read
        assert (await peer.reply(plain)).status == Status.NO_ENTRY
        assert token not in peer.replies
        disk.free.set()
        assert (await peer.reply(token)).status == Status.NO_ENTRY

    served(tmp_path, run, world=replace(real_world(), disk=disk))
