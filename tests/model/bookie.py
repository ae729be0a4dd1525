"""The real bookie as a table: what a request makes of the ledger it holds, and what it answers.

For every pair of state and request that occurs a real bookie is started in a simulated world, brought to that state
over its own port, and given the request. A state is what it keeps of the ledger: fenced or not, and its entries. Each
new state is checked against a restart: what was answered must be there when the journal has been replayed.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

from bkdaemon.bookie.bookie import Bookie

from bkctl.codec.checksum import master_key
from bkctl.codec.entry import METADATA, METADATA_SIZE
from bkctl.codec.wire import Flag
from bkctl.model.status import Status
from bkctl.protocol.bookie_client import BookieConversation
from tests.model.messages import Request
from tests.sim.bookies import BOOKIE_PORT, Caller, serve, small_config
from tests.sim.loop import SimLoop, run
from tests.sim.machine import Machine
from tests.sim.network import Fabric
from tests.sim.trace import Trace

KEY: Final = master_key(b"")
DIGEST_SIZE: Final = 4


class Held(NamedTuple):
    """What a bookie keeps of the ledger."""

    known: bool
    fenced: bool
    entries: tuple[tuple[int, bytes], ...]


class BookieTable:
    """All states of one bookie's ledger that were reached, by number from 0: it knows nothing."""

    def __init__(self, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self.states: list[Held] = [Held(known=False, fenced=False, entries=())]
        self._numbers: dict[Held, int] = {self.states[0]: 0}
        self._paths: list[tuple[Request, ...]] = [()]
        self._steps: dict[tuple[int, Request], tuple[int, int, bytes | None]] = {}

    def step(self, number: int, request: Request) -> tuple[int, int, bytes | None]:
        """(state, status, body) that the request leads to. Which bookie, and at which index, makes no difference."""
        request = request._replace(bookie=0, index=0)
        found = self._steps.get((number, request))
        if found is None:
            path = (*self._paths[number], request)
            held, status, body = run(lambda loop: self._play(loop, path))
            after = self._numbers.get(held)
            if after is None:
                after = self._numbers[held] = len(self.states)
                self.states.append(held)
                self._paths.append(path)
            found = self._steps[number, request] = (after, status, body)
        return found

    def holds(self, number: int, entry_id: int) -> bool:
        """True if the entry is there."""
        return any(e == entry_id for e, _ in self.states[number].entries)

    def payloads(self, number: int) -> dict[int, bytes]:
        """The payloads by entry id, as the entries themselves say it."""
        held = self.states[number].entries
        return {METADATA.unpack_from(body)[1]: body[METADATA_SIZE + DIGEST_SIZE :] for _, body in held}

    def is_idle(self, number: int, request: Request) -> bool:
        """True if the request will never change anything any more, whatever comes before it."""
        held = self.states[number]
        if request.body is None:
            return held.fenced or not request.flags & Flag.FENCE
        return held.fenced and not request.flags & Flag.RECOVERY_ADD

    def __len__(self) -> int:
        return len(self.states)

    async def _play(self, loop: SimLoop, path: tuple[Request, ...]) -> tuple[Held, int, bytes | None]:
        """A new bookie, the requests one after another; then a restart."""
        random, trace = Random(1), Trace(loop.time)
        fabric = Fabric(loop, random, trace)

        def new_caller() -> Caller:
            return Caller(BookieConversation(3))

        client, machine = (Machine(loop, fabric, trace, random, name) for name in ("client", "b"))
        process, world = client.start()
        before = Held(known=False, fenced=False, entries=())
        answer: Any = None
        for restarted in (False, True):
            bookie_process, bookie_world = machine.start()
            bookie, _ = await bookie_process.spawn(serve(bookie_world, small_config(), "b"))
            if not restarted:
                _, caller = await process.spawn(world.network.connect("b", BOOKIE_PORT, new_caller))
                assert isinstance(caller, Caller)
                for request in path:
                    answer = await process.spawn(caller.call(self._encoded(caller.conversation, request)))
                before = await bookie_process.spawn(self._held(bookie))
                machine.kill()
            else:
                after_restart = await bookie_process.spawn(self._held(bookie))
                assert after_restart == before, f"{before} is {after_restart} after a restart"
        assert not loop.failures, loop.failures
        return before, int(answer.status), answer.body if answer.status == Status.OK and path[-1].body is None else None

    def _encoded(self, conversation: BookieConversation, request: Request) -> tuple[int, bytes]:
        if request.body is not None:
            return conversation.add(self._ledger_id, request.entry_id, KEY, request.body, request.flags)
        key = KEY if request.flags & Flag.FENCE else None
        return conversation.read(self._ledger_id, request.entry_id, request.flags, key)

    async def _held(self, bookie: Bookie) -> Held:
        """What a bookie keeps, from its storage."""
        ledger = bookie.storage.ledger(self._ledger_id)
        if ledger is None:
            return Held(known=False, fenced=False, entries=())
        bookie.storage.load(ledger)
        found = [(e, bookie.storage.read(ledger, e)) for e in range(ledger.last + 1)]
        return Held(True, ledger.fenced, tuple((e, bytes(body)) for e, body in found if body is not None))
