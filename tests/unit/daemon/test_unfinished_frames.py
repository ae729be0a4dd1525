"""Bounds of unfinished frames on a bookie's port: bytes of all connections, and time without progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bkdaemon import unfinished_frames
from bkdaemon.unfinished_frames import SHORT_FRAME, SWEEPS

from bkctl.model.status import Status
from tests.unit.daemon.bookie.peers import KEY, Peer, Running, entry, served

KIB = 1024
FRAME = 200 * KIB
BOUND = 4096 * KIB
LIMITS = {"frame_size_max": 256 * KIB, "unfinished_frame_bytes_max": BOUND}
LONG_MS = 3_600_000
SHORT_MS = 600


@asynccontextmanager
async def most_held(running: Running) -> AsyncIterator[list[int]]:
    """The most bytes of unfinished frames that were held at a time."""
    unfinished, most = running.server.unfinished, [0]

    async def watch() -> None:
        while True:
            most[0] = max(most[0], unfinished.size)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    try:
        yield most
    finally:
        watching.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def long_add(peer: Peer, number: int) -> tuple[int, bytes]:
    return peer.conversation.add(number, 0, KEY, entry(number, 0, bytes(FRAME)))


@pytest.mark.parametrize("version", [2, 3])
def test_half_frames_above_the_bound_end_and_other_clients_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(unfinished_frames, "PROGRESS_S", 0.2)
    monkeypatch.setattr(unfinished_frames, "POLL_S", 0.05)

    async def run(running: Running) -> None:
        async with most_held(running) as most:
            stalled = [await running.connect(version) for _ in range(40)]
            for number, peer in enumerate(stalled):
                peer.writer.write(long_add(peer, number)[1][: 195 * KIB])
            other = await running.connect(version)
            for entry_id in range(20):
                add = other.conversation.add(99, entry_id, KEY, entry(99, entry_id))
                assert (await other.ask(add)).status == Status.OK
            for peer in stalled:
                assert await peer.closed()
            assert (await other.ask(other.conversation.read(99, 0))).status == Status.OK
            assert running.server.unfinished.size == 0
            assert running.server.ended_unfinished == 40
        assert BOUND // 4 < most[0] <= BOUND

    served(tmp_path, run, unfinished_frame_timeout_ms=SHORT_MS, **LIMITS)


@pytest.mark.parametrize("version", [2, 3])
def test_long_frames_of_many_clients_wait_for_room_and_are_all_stored(tmp_path: Path, version: int) -> None:
    async def run(running: Running) -> None:
        async with most_held(running) as most:
            peers = [await running.connect(version) for _ in range(40)]
            adds = [long_add(peer, number) for number, peer in enumerate(peers)]
            for at in range(0, len(adds[0][1]) + 1, 16 * KIB):
                for peer, (_, frame) in zip(peers, adds, strict=True):
                    peer.writer.write(frame[at : at + 16 * KIB])
                await asyncio.sleep(0)
            for peer, (token, _) in zip(peers, adds, strict=True):
                assert (await peer.reply(token)).status == Status.OK
        assert most[0] <= BOUND
        assert (running.server.unfinished.size, running.server.ended_unfinished) == (0, 0)

    served(tmp_path, run, unfinished_frame_timeout_ms=LONG_MS, **LIMITS)


def test_above_the_bound_the_oldest_short_frames_end_and_the_newest_is_stored(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        async with most_held(running) as most:
            peers = [await running.connect(2) for _ in range(BOUND // SHORT_FRAME + 20)]
            adds = [long_add(peer, number) for number, peer in enumerate(peers)]
            for peer, (_, frame) in zip(peers, adds, strict=True):
                peer.writer.write(frame[: SHORT_FRAME - 1])
            await until(lambda: running.server.ended_unfinished >= 19)
        assert running.server.ended_unfinished <= 20
        assert most[0] <= BOUND
        token, frame = adds[-1]
        peers[-1].writer.write(frame[SHORT_FRAME - 1 :])
        assert (await peers[-1].reply(token)).status == Status.OK

    served(tmp_path, run, unfinished_frame_timeout_ms=LONG_MS, **LIMITS)


@pytest.mark.parametrize("size", [1, 4, 100, 100 * KIB])
def test_a_frame_without_progress_ends_its_connection_while_slow_and_idle_ones_stay_open(
    tmp_path: Path, size: int
) -> None:
    async def run(running: Running) -> None:
        idle, slow, stalled = [await running.connect(2) for _ in range(3)]
        stalled.writer.write(long_add(stalled, 1)[1][:size])
        token, frame = long_add(slow, 2)
        sent = 0
        ending = asyncio.create_task(stalled.closed())
        while not ending.done():
            slow.writer.write(frame[sent : sent + 10])
            sent += 10
            await asyncio.sleep(0.005)
        slow.writer.write(frame[sent:])
        assert (await slow.reply(token)).status == Status.OK
        assert (await idle.ask(idle.conversation.read(2, 0))).status == Status.OK
        assert running.server.ended_unfinished == 1

    served(tmp_path, run, unfinished_frame_timeout_ms=SHORT_MS, **LIMITS)


def test_a_frame_that_the_bookie_did_not_read_for_longer_than_the_timeout_is_stored(tmp_path: Path) -> None:
    async def run(running: Running) -> None:
        peer = await running.connect(2)
        token, frame = long_add(peer, 1)
        peer.writer.write(frame[: 50 * KIB])
        unfinished = running.server.unfinished
        await until(lambda: unfinished.size >= 50 * KIB)
        running.server.throttle(True)
        (connection,) = running.server.connections
        await until(lambda: bool(w := unfinished._watches.get(connection)) and w.stalled >= SWEEPS + 2)
        running.server.throttle(False)
        peer.writer.write(frame[50 * KIB :])
        assert (await peer.reply(token)).status == Status.OK
        assert running.server.ended_unfinished == 0

    served(tmp_path, run, unfinished_frame_timeout_ms=SHORT_MS, **LIMITS)
