"""A simulated machine: a disk that outlives processes, a address, power; and the World it hands to a process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from bkctl.world import World
from tests.sim.disk import SimDisk
from tests.sim.loop import PowerCut, Process, SimLoop
from tests.sim.network import Fabric
from tests.sim.trace import Trace

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
WORK_S: Final = 0.00002
SYNC_S: Final = 0.001
BYTE_S: Final = 1 / 500e6


class SimClock:
    """Wall-clock time of one machine: virtual time and an error."""

    def __init__(self, loop: SimLoop, skew_ms: int) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return EPOCH_MS + int(self._loop.now * 1000) + self.skew_ms


class SimWorker:
    """One thread: pieces of work run one after another, each at one point in virtual time.

    A piece takes time for what it does to the disk. Whether its effects come at the beginning or at the end of that
    time is drawn for each piece; a power cut between finds them there or not; `disk.fail_at` cuts in the middle.
    """

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._busy = False
        self._closed = False
        self._done_s = 0.0

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Queues work."""
        assert not self._closed, "work for a worker that was closed"
        self._queue.append((work, done))
        if not self._busy:
            self._busy = True
            self._next()

    def close(self) -> None:
        """Does at once what was submitted."""
        self._closed = True
        while self._queue:
            self._run(*self._queue.popleft(), 0.0)

    def _next(self) -> None:
        random, loop = self._machine.random, self._machine.loop
        wait_s = WORK_S if random.random() < 0.5 else random.expovariate(1 / (SYNC_S * self._machine.sync_factor))
        loop.call_later(wait_s, self._work, context=self._process.context)

    def _work(self) -> None:
        if self._queue:
            self._run(*self._queue.popleft(), None)
        else:
            self._busy = False

    def _run(self, work: Callable[[], Any], done: Callable[..., None], after_s: float | None) -> None:
        disk = self._machine.disk
        syncs, written = disk.synced_count, disk.written_bytes
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except PowerCut:
            return
        except BaseException as e:  # noqa: BLE001 - as ThreadWorker: it belongs to whoever asked
            error = e
        if not self._process.alive:
            return
        if after_s is None:
            cost_s = (disk.synced_count - syncs) * SYNC_S * self._machine.sync_factor
            cost_s += (disk.written_bytes - written) * BYTE_S
            after_s = self._machine.random.random() * 2 * cost_s + WORK_S
        loop = self._machine.loop
        self._done_s = max(self._done_s, loop.now + after_s)
        loop.call_at(self._done_s, self._done, done, result, error, context=self._process.context)

    def _done(self, done: Callable[..., None], result: Any, error: BaseException | None) -> None:
        if self._queue and self._machine.random.random() < 0.3:  # the thread is quicker than the loop
            self._work()
        elif self._queue:
            self._next()
        else:
            self._busy = False
        done(result, error)


class Machine:
    """One host. `start()` begins a process and gives it a World; kill, stop and power cuts end or freeze it."""

    def __init__(self, loop: SimLoop, fabric: Fabric, trace: Trace, random: Random, name: str) -> None:
        self.loop = loop
        self.fabric = fabric
        self.trace = trace
        self.random = Random(random.getrandbits(64))
        self.name = name
        self.disk = SimDisk(Random(random.getrandbits(64)), trace, name)
        self.disk.on_fail = self.power_off
        self.skew_ms = 0
        self.sync_factor = 1.0
        self.starts = 0
        self.process: Process | None = None

    @property
    def running(self) -> bool:
        """True while a process lives."""
        return self.process is not None and self.process.alive

    def start(self) -> tuple[Process, World]:
        """Begins a process; there is one a machine."""
        assert not self.running, f"{self.name} runs already"
        self.fabric.down.discard(self.name)
        self.starts += 1
        process = self.process = Process(self.loop, f"{self.name}#{self.starts}")
        process.on_end(self.disk.locks.clear)
        self.trace.add("start", process.name)
        world = World(
            SimClock(self.loop, self.skew_ms),
            Random(self.random.getrandbits(64)),
            self.disk.door(lambda: process.alive),
            self.fabric.door(self.name, process),
            lambda _name: SimWorker(self, process),
        )
        return process, world

    def kill(self) -> None:
        """SIGKILL: the process ends, the operating system keeps what it wrote."""
        if self.process is not None and self.process.alive:
            self.trace.add("kill", self.process.name)
            self.process.kill()

    def power_off(self) -> None:
        """The machine goes dark: nothing runs, nothing answers, what was not synced is at the drive's mercy."""
        if self.name in self.fabric.down:
            return
        self.fabric.down.add(self.name)
        if self.process is not None:
            self.process.kill()
        self.disk.lose_power()

    def stop(self) -> None:
        """SIGSTOP."""
        if self.process is not None and self.process.alive and not self.process.stopped:
            self.trace.add("stop", self.process.name)
            self.process.stop()

    def go_on(self) -> None:
        """SIGCONT."""
        if self.process is not None and self.process.alive and self.process.stopped:
            self.trace.add("go-on", self.process.name)
            self.process.go_on()

    def cut_power_in(self, changes: int) -> None:
        """Cuts the power at the disk's n-th change from now, in the middle of whatever makes it."""
        self.disk.fail_at = changes
