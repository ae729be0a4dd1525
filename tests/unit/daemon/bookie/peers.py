"""Plain clients of a bookie's port, over real sockets and real files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import memory_index
from bkdaemon.bookie.server import BookieServer

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.codec.wire import FRAME_SIZE_MAX, Reply
from bkctl.model.ledger import DigestType
from bkctl.protocol.bookie_client import BookieConversation
from bkctl.world import World, real_world

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


class Running:
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
    path: Path, test: Callable[[Running], Awaitable[None]], *, world: World | None = None, **settings: Any
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
        running = Running(server)
        try:
            await asyncio.wait_for(test(running), 120)
        finally:
            await running.leave()
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
