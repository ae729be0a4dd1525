"""The requests of a bookie that are not plain adds and reads: fencing, batch reads, long polls, LACs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec import availability
from bkctl.codec.entry import encode_lac
from bkctl.codec.wire import Flag
from bkctl.model.status import Status
from bkctl.world import SystemDisk, SystemFile, real_world
from tests.unit.daemon.bookie.peers import DIGEST, KEY, PATIENCE_S, Running, entry, served, until


@pytest.mark.parametrize("version", [2, 3])
def test_a_fenced_ledger_rejects_its_writer_and_accepts_recovery_adds(tmp_path: Path, version: int) -> None:
    async def run(running: Running) -> None:
        writer, recoverer = await running.connect(version), await running.connect(version)
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


def test_batch_reads_end_at_the_count_the_size_or_the_last_entry(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect(2)
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


def test_explicit_lacs_forces_info_and_lists_of_entries(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect()
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


def test_a_long_poll_is_answered_when_the_lac_passes_or_the_time_is_over(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        reader, writer = await running.connect(), await running.connect()
        ask, say = reader.conversation, writer.conversation
        await writer.ask(say.add(7, 0, KEY, entry(7, 0)))
        await writer.ask(say.add(7, 1, KEY, entry(7, 1)))
        past = await reader.ask(ask.long_poll(7, -1, 60_000))
        assert (past.status, past.entry_id, past.body, past.max_lac, past.extra) == (0, 0, entry(7, 0), 0, None)
        in_vain = await reader.ask(ask.long_poll(7, 0, 1))
        assert (in_vain.status, in_vain.entry_id, in_vain.body, in_vain.max_lac) == (0, -1, None, 0)
        token, frame = ask.long_poll(7, 0, 60_000)
        reader.writer.write(frame)
        await until(lambda: bool(running.server.requests.long_polls))
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
def test_a_long_poll_ends_with_a_fence_an_explicit_lac_or_the_connection(tmp_path: Path, event: str) -> None:
    async def run(running: Running) -> None:
        reader, other = await running.connect(), await running.connect()
        ask, say = reader.conversation, other.conversation
        await other.ask(say.add(7, 0, KEY, entry(7, 0)))
        token, frame = ask.long_poll(7, 5, 60_000)
        reader.writer.write(frame)
        await until(lambda: bool(running.server.requests.long_polls))
        if event == "fence":
            await other.ask(say.read(7, -1, Flag.FENCE, KEY))
            assert (await reader.reply(token)).max_lac == -1
        elif event == "explicit LAC":
            await other.ask(say.write_lac(7, 9, KEY, encode_lac(7, 9, DIGEST)))
            woken = await reader.reply(token)
            assert (woken.status, woken.entry_id, woken.body, woken.max_lac) == (0, -1, None, 9)
        else:
            reader.writer.close()
        await until(lambda: not running.server.requests.long_polls)

    served(tmp_path, run)


def test_a_read_only_bookie_rejects_adds_and_lacs_and_fences(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect()
        say = peer.conversation
        assert (await peer.ask(say.add(7, 0, KEY, entry(7, 0)))).status == Status.READ_ONLY
        assert (await peer.ask(say.write_lac(7, 1, KEY, encode_lac(7, 1, DIGEST)))).status == Status.READ_ONLY
        assert (await peer.ask(say.read(7, -1, Flag.FENCE, KEY))).status == Status.NO_ENTRY

    served(tmp_path, run, force_read_only=True)


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


def test_a_fencing_read_is_answered_after_the_fence_is_durable(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def run(running: Running) -> None:
        peer = await running.connect()
        token, frame = peer.conversation.read(7, 0, Flag.FENCE, KEY)
        peer.writer.write(frame)
        plain, frame = peer.conversation.read(7, 1)
        peer.writer.write(frame)  # needs no fence, and follows the fencing read
        assert (await peer.reply(plain)).status == Status.NO_ENTRY
        assert token not in peer.replies
        disk.free.set()
        assert (await peer.reply(token)).status == Status.NO_ENTRY

    served(tmp_path, run, world=replace(real_world(), disk=disk))
