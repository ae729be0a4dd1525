"""An asyncio loop in virtual time, and processes in it that can be killed and stopped.

Nothing waits: when no callback is ready, the clock jumps to the next timer. Ties are broken by order of creation, and
tasks and futures hash by a serial number, so that even a set of tasks is walked in the same order in every run.

A Process is a context variable: whatever is started in it (callbacks, timers, tasks, and what they start) belongs to
it. A killed process runs nothing any more, as after SIGKILL: no `finally`, no callback. A stopped one (SIGSTOP) finds
everything that came meanwhile when it goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

STEPS_AT_ONE_TIME_MAX: Final = 200_000  # more rounds of the loop without the clock moving: somebody spins
CLOSES_MAX: Final = 20


class PowerCut(BaseException):
    """Unwinds what was under way when the power went."""


class Deadlock(RuntimeError):
    """Nothing is scheduled, and somebody still waits."""


class Livelock(RuntimeError):
    """The loop goes round and round while no time passes."""


class Process:
    """What runs on behalf of one simulated program."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.stopped = False
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        self.ended: asyncio.Future[None] = loop.create_future()
        self.steps = 0  # callbacks and steps of tasks that it has begun: between two of them it may be killed
        self.effects = 0  # what it has sent out: bytes, requests to the metadata store
        self.moments: list[int] = []  # the first steps after such: to be killed elsewhere looks the same from outside
        self.strike_at = -1
        self.strike: Callable[[], None] = self.kill
        self._effects_seen = -1
        self._held: list[asyncio.Handle] = []
        self._endings: list[Callable[[], None]] = []

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Starts a task that belongs to this process."""
        assert self.alive, f"{self.name} is dead"
        return self.loop.create_task(work, name=name, context=self.context.copy())

    def call(self, function: Callable[..., None], *args: object) -> None:
        """Runs function soon, in this process."""
        self.loop.call_soon(function, *args, context=self.context)

    def on_end(self, function: Callable[[], None]) -> None:
        """Has function called (outside of this process) when it is killed."""
        self._endings.append(function)

    def kill(self) -> None:
        """Ends it between two instructions."""
        if not self.alive:
            return
        self.alive = False
        self._held.clear()
        if not self.ended.done():
            self.ended.set_result(None)
        for ending in self._endings:
            ending()

    def stop(self) -> None:
        """Freezes it (SIGSTOP)."""
        self.stopped = True

    def go_on(self) -> None:
        """Lets it go on (SIGCONT), with everything that came while it was stopped, in order."""
        self.stopped = False
        held, self._held = self._held, []
        self.loop.put_back(held)

    def begins(self) -> bool:
        """Counts one more step, in front of which `strike` is called if it is number strike_at; False: it must wait."""
        if self.stopped or not self.alive:
            return False
        self.steps += 1
        if self.effects != self._effects_seen:
            self._effects_seen = self.effects
            self.moments.append(self.steps)
        if self.steps == self.strike_at:
            self.strike()
            return self.alive and not self.stopped
        return True

    def hold(self, handle: asyncio.Handle) -> None:
        """Keeps what would run now until the process goes on; forgets it when there is no process."""
        if self.alive:
            self._held.append(handle)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)
OUTSIDE: Final = contextvars.Context()
"""Runs what belongs to no process: the network, the scenario, the checkers."""


class _Handle(asyncio.Handle):
    __slots__ = ("process",)

    def _run(self) -> None:
        process = self.process
        if process is None or process.begins():
            super()._run()
        else:
            process.hold(self)


class _Timer(asyncio.TimerHandle):
    __slots__ = ("process", "serial")

    def _run(self) -> None:
        process = self.process
        if process is None or process.begins():
            super()._run()
        else:
            process.hold(self)

    def __lt__(self, other: _Timer) -> bool:
        return (self._when, self.serial) < (other._when, other.serial)

    def __hash__(self) -> int:
        return hash(self.serial)

    def __eq__(self, other: object) -> bool:
        return self is other


class _Future(asyncio.Future):  # type: ignore[type-arg]
    def __init__(self, *, loop: SimLoop) -> None:
        self.serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class _Task(asyncio.Task):  # type: ignore[type-arg]
    def __init__(self, work: Coroutine[Any, Any, Any], *, loop: SimLoop, **options: Any) -> None:
        self.serial = loop.next_serial()
        super().__init__(work, loop=loop, **options)
        self.process = options.get("context", contextvars.copy_context()).get(PROCESS)

    def __hash__(self) -> int:
        return self.serial


class _Selector:
    """Where a real loop sleeps, this one moves its clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._steps = 0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock(f"nothing is scheduled at {self._loop.now:.6f} s, and somebody waits for ever")
        if timeout > 0:
            self._loop.jump(timeout)
            self._steps = 0
        self._steps += 1
        if self._steps > STEPS_AT_ONE_TIME_MAX:
            spinning = [repr(h) for h in (*self._loop._ready, *self._loop._scheduled[:2])]  # type: ignore[attr-defined]
            raise Livelock(f"{self._steps} rounds without time passing at {self._loop.now:.6f} s: {spinning[:3]}")
        return []

    def close(self) -> None:
        """Nothing to close."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks, timers and tasks in virtual time. `failures` holds what escaped from callbacks and tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.failures: list[str] = []
        self._selector = _Selector(self)
        self._clock_resolution = 1e-7  # above what a float loses in years of virtual time
        self._serial = 0
        self._tasks: list[_Task] = []
        self.set_exception_handler(self._note)

    def next_serial(self) -> int:
        """A number never given before."""
        self._serial += 1
        return self._serial

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.now

    def jump(self, timeout_s: float) -> None:
        """Moves the clock to the next timer, exactly."""
        first = self._scheduled[0]._when  # type: ignore[attr-defined]
        self.now = first if abs(self.now + timeout_s - first) < 1e-6 else self.now + timeout_s

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes by its serial number."""
        return _Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """A task that hashes by its serial number."""
        task = _Task(coro, loop=self, **options)
        self._tasks.append(task)
        if len(self._tasks) % 4096 == 0:
            self._tasks = [t for t in self._tasks if not t.done()]
        return task

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        """Makes handles ready again, in order."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, for the process of the context."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        timer.process = timer._context.get(PROCESS)
        timer.serial = self.next_serial()
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Refused: a thread would bring the machine's time and order into the run."""
        raise RuntimeError("threads are outside of the simulation: use world.worker")

    def finish(self) -> None:
        """Ends every process, throws away what is left of their tasks, closes the loop."""
        self.set_exception_handler(lambda _loop, _context: None)
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were killed before their first step
                self._unwind()
        finally:
            sys.unraisablehook = complain
        self.close()

    def _unwind(self) -> None:
        while left := [t for t in self._tasks if not t.done()]:  # a `finally` may begin new ones
            self._tasks = []
            for task in left:
                if task.process is not None:
                    task.process.kill()
            for task in left:
                task._log_destroy_pending = False
                _end(task.get_coro().close)
            left.clear()
            del task
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        if self._asyncgens:  # type: ignore[attr-defined]
            gc.collect()  # while the loop is open: what is unwound may still call it
        self._tasks.clear()

    def _call_soon(self, callback: Any, args: Any, context: contextvars.Context | None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        handle.process = handle._context.get(PROCESS)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _process_events(self, events: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, nobody is woken."""

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, PowerCut):
            return
        task = context.get("task") or context.get("future")
        process = getattr(task, "process", None)
        if process is not None and not process.alive:
            return
        self.failures.append(f"{context.get('message')}: {error!r}")


def _end(close: Callable[[], object]) -> None:
    """Unwinds code of a dead process, which has nobody to complain to; again, where its `finally` awaits something."""
    for _ in range(CLOSES_MAX):
        try:
            close()
        except RuntimeError:  # "coroutine ignored GeneratorExit"
            continue
        except BaseException:  # noqa: BLE001
            return
        return


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs main(loop) in a loop of its own, to its end."""
    loop = SimLoop()
    before = asyncio._get_running_loop()
    assert before is None, "a simulation inside a running loop"
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.finish()
