"""A cluster on which a test says what happens: its clients, its ledgers, and the promises at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.client.writer import LedgerWriter
from bkctl.errors import BkctlError
from bkctl.model.ledger import DigestType, LedgerMetadata
from tests.sim.autorecovery import RepairScenario, calm_shape
from tests.sim.cluster import Cluster
from tests.sim.history import History, LedgerHistory
from tests.sim.loop import SimLoop, run
from tests.sim.promises import host_of
from tests.sim.scenario import PASSWORD
from tests.sim.trace import Trace

SETTINGS: Final = RecoverySettings(
    verify_percentage=100, open_grace_s=2.0, failure_pause_s=8.0, ledger_check_s=5.0, password=PASSWORD
)
PATIENCE_S: Final = 120.0


class Play:
    """A cluster, and what a test does with it."""

    def __init__(
        self, loop: SimLoop, bookies: int, quorums: tuple[int, int, int], settings: RecoverySettings, seed: int
    ) -> None:
        self.cluster = Cluster(loop, Random(seed), Trace(loop.time))
        self.cluster.history = History(repairs=True)
        self.scenario = RepairScenario(self.cluster, calm_shape(bookies, quorums, settings), Random(1))
        self.quorums = quorums

    async def client(self, host: str, work: Callable[[BookKeeper], Awaitable[Any]]) -> Any:
        """Does work on a machine, to its end; raises what ended it."""
        box: list[Any] = []

        async def kept(bookkeeper: BookKeeper) -> None:
            try:
                box.append((await work(bookkeeper), None))
            except BkctlError as e:
                box.append((None, e))

        self.cluster.run_client(host, kept, **self.scenario.settings)
        assert await self.cluster.until(lambda: bool(box), PATIENCE_S)
        result, error = box[0]
        if error is not None:
            raise error
        return result

    async def create(self, bookkeeper: BookKeeper) -> LedgerWriter:
        """A new ledger, whose confirmations go to the history."""
        writer = await bookkeeper.create(*self.quorums, DigestType.CRC32C, PASSWORD)
        ledger_id = writer.ledger_id
        self.cluster.history.ledgers.setdefault(ledger_id, LedgerHistory())
        note = self.cluster.noted
        writer.on_confirmed(lambda last: note(self.cluster.history.confirmed, ledger_id, last))
        return writer

    def append(self, writer: LedgerWriter, count: int) -> None:
        """Appends entries."""
        first = writer.last_pushed + 1
        payloads = [b"entry %d" % (first + i) for i in range(count)]
        self.cluster.noted(self.cluster.history.appended, writer.ledger_id, first, payloads)
        writer.append_many(payloads)

    async def write(self, host: str, count: int) -> int:
        """Writes and closes a ledger; returns its number."""

        async def work(bookkeeper: BookKeeper) -> int:
            writer = await self.create(bookkeeper)
            self.append(writer, count)
            await writer.close()
            return writer.ledger_id

        return int(await self.client(host, work))

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """The ledger's newest."""
        metadata = self.cluster.history.ledgers[ledger_id].metadata
        assert metadata is not None
        return metadata

    def hosts(self, ledger_id: int) -> list[str]:
        """The machines of its last ensemble."""
        return [host_of(bookie) for bookie in self.metadata(ledger_id).last_ensemble.bookies]

    def expire(self, host: str) -> None:
        """The metadata store ends the sessions of a machine at once, as if it had not heard of it for long."""
        for store in self.cluster.metadata.sessions:
            if store.host == host:
                store.expire()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits in virtual time."""
        assert await self.cluster.until(condition, PATIENCE_S)

    async def end(self) -> None:
        """Everything is closed and read back, and whole after auto recovery had its time."""
        self.cluster.history.peace = True
        await self.scenario.settle()
        self.scenario.start_node("a0")
        await self.scenario.wait_repaired()
        self.cluster.check()


def play(
    main: Callable[[Play], Awaitable[None]],
    bookies: int = 5,
    quorums: tuple[int, int, int] = (3, 3, 2),
    settings: RecoverySettings = SETTINGS,
    seed: int = 7,
) -> None:
    """One run of main, and the promises."""

    async def whole(loop: SimLoop) -> None:
        stage = Play(loop, bookies, quorums, settings, seed)
        await stage.cluster.create(bookies)
        await main(stage)
        await stage.end()

    run(whole)
