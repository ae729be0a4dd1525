"""Shared by all jobs on many ledgers: options, client, the text of the plan, execution, summary."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.progress import size_words
from bkctl.cli.render import rfc3339
from bkctl.errors import Conflict, Exit, NoSuchLedger, NotFound, Refused, Unavailable, UsageError
from bkctl.model.ids import BookieId, parse_bookie_id

if TYPE_CHECKING:
    from bkrecovery.drain import DrainClaim
    from bkrecovery.job import JobOptions, JobRecord, MoveJob, MovePlan, MoveResult
    from bkrecovery.job_control import JobControl
    from bkrecovery.job_state import JobFile, JobState

    from bkctl.cli.access import ClusterAccess
    from bkctl.meta.ledgers import LedgerStore

SHOWN_MAX: Final = 20
"""Ledgers, or bookies, named one by one in a plan."""
COLUMNS: Final = ("ledger_id", "fragments", "fenced", "error")
MEASURED_BYTES_MIN: Final = 16 * 1024 * 1024
"""A job that copied less is too small to estimate the rate of the next one."""
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]?)(i?)(?:B(?:/s)?)?")
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_rate(text: str) -> float:
    """Bytes a second: 50000000, 50MB, 64MiB/s.

    Raises:
        UsageError: not a valid rate, or zero.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--rate {text!r} is not a valid rate", hint="bytes per second: 50000000, 50MB, 64MiB/s")
    return float(match[1]) * (1024.0 if match[3] else 1000.0) ** _POWERS[match[2]]


RateText = Annotated[
    str | None, typer.Option("--rate", metavar="BYTES", help="limit in bytes per second: 50MB, 64MiB/s")
]
Parallel = Annotated[
    int | None, typer.Option("--parallel", metavar="N", min=1, max=256, help="number of concurrent ledgers; default 16")
]
MaxErrors = Annotated[
    int | None, typer.Option("--max-errors", metavar="N", min=0, help="stop after more failed ledgers than this")
]
Restart = Annotated[bool, typer.Option("--restart", help="discard the state of an earlier run and plan from scratch")]
StateFile = Annotated[
    Path | None, typer.Option("--state", metavar="FILE", help="file for the job's state; default: below ~/.local/state")
]
To = Annotated[
    list[str] | None, typer.Option("--to", metavar="BOOKIE", help="copy only to this bookie; may be repeated")
]


@dataclass(frozen=True, slots=True)
class JobMemory:
    """The options for failures and state of a job."""

    max_errors: MaxErrors = None
    restart: Restart = False
    state: StateFile = None


@dataclass(frozen=True, slots=True)
class JobArguments(JobMemory):
    """The options of all jobs that copy."""

    rate: RateText = None
    parallel: Parallel = None
    to: To = None

    @property
    def bytes_per_s(self) -> float:
        """0 without a limit."""
        return parse_rate(self.rate) if self.rate is not None else 0.0


def who(env: Env) -> str:
    """The user of this command, as other clients see it."""
    import socket

    user = env.environ.get("USER") or env.environ.get("LOGNAME") or "bkctl"
    return f"{user}@{socket.gethostname()}"


@dataclass(slots=True)
class Session:
    """One run of a job on an open cluster."""

    env: Env
    job: MoveJob
    file: JobFile
    state: JobState
    record: JobRecord
    arguments: JobArguments
    claims: dict[BookieId, DrainClaim] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The directory of job states."""
        return self.env.state_dir / "jobs"

    async def plan(self, only: Sequence[int] | None = None) -> MovePlan:
        """The plan: for the ledgers left by an earlier run, for the given ledgers, or for all."""
        left = self.state.left
        if left and only is None:
            when = rfc3339(self.state.started_ms)
            self.env.note(
                f"resuming the job of {when}: {self.state.done} ledgers are done, {len(left)} are left"
                f" ({self.file.path}; --restart plans from scratch)"
            )
            plan = await self.job.plan(left)
            if plan.moves or plan.blocked:
                return plan
        return await self.job.plan(only)

    def begin(self) -> None:
        """Starts storing the job's state, as its plan is confirmed."""
        self.file.acquire()
        self.job.record = self.record
        self.state.note |= started_by(self.env, self.arguments.bytes_per_s, self.job.options.parallel)

    def controlled(self) -> Controlled:
        """The requests of `bkctl job` to this run."""
        import asyncio

        def set_rate(rate: float) -> None:
            self.job.replicator.rate.change(asyncio.get_running_loop().time(), rate)

        return Controlled(self.env, self.file, self.record, set_rate, self.job.set_parallel)

    def words(self, what: str, plan: MovePlan, last_steps: tuple[str, ...] = (), first: tuple[str, ...] = ()) -> Plan:
        """The plan for a person."""
        return Plan(
            _summary(what, plan), (*first, *self._steps(plan), *last_steps), subject=", ".join(sorted(plan.bookies))
        )

    def _steps(self, plan: MovePlan) -> list[str]:
        from bkrecovery.job_state import measured_rate

        from bkctl.world import PrivateDisk

        steps = [_move_words(move) for move in plan.moves[:SHOWN_MAX]]
        if len(plan.moves) > SHOWN_MAX:
            steps.append(f"and {len(plan.moves) - SHOWN_MAX} more ledgers")
        given, taken = plan.flows()
        for sums, words in ((given, "read from"), (taken, "copy to")):
            largest = sorted(sums, key=lambda b: (-sums[b], b))[:SHOWN_MAX]
            if largest:
                flows = ", ".join(f"{b} ({size_words(sums[b])})" for b in largest)
                steps.append(f"{words} {flows}")
        if plan.size_bytes:
            rate = self.arguments.bytes_per_s or measured_rate(PrivateDisk(), self.directory)
            if rate:
                why = "--rate" if self.arguments.rate else "measured by the last job on this machine"
                seconds = plan.seconds(rate) or 0.0
                steps.append(f"about {seconds:.0f} s for the closed ledgers at {size_words(rate)}/s ({why})")
            else:
                steps.append(
                    "duration unknown: no --rate is given, and no earlier job on this machine has measured one"
                )
        steps += [f"ledger {ledger_id} is skipped: {reason}" for ledger_id, reason in plan.blocked[:SHOWN_MAX]]
        if len(plan.blocked) > SHOWN_MAX:
            steps.append(f"and {len(plan.blocked) - SHOWN_MAX} more ledgers are skipped")
        return steps

    async def work(self, plan: MovePlan) -> list[dict[str, Any]]:
        """Executes a plan; yields one item a ledger, with its error. Exit 1 if any ledger is left."""
        with self.progress(len(plan.moves)) as done:
            results = await self.job.apply(plan, done)
        named = {result.ledger_id for result in results}
        items = [result_item(result) for result in results]
        items += [blocked_item(ledger_id, reason) for ledger_id, reason in plan.blocked if ledger_id not in named]
        return items

    def progress(self, total: int) -> Working:
        """Shows and counts progress; a context manager that yields the callback for each ledger."""
        return Working(self, total)

    def finish(self, items: list[dict[str, Any]]) -> None:
        """Writes the summary, the exit code and the job's state."""
        failed = [item for item in items if item["error"] is not None]
        begun = self.job.record is not None  # Else the plan was empty, and there is no state to store.
        if failed:
            self.env.exit = Exit.FINDINGS
        if begun:
            self.record.save() if failed else self.record.end()
        counts = self.job.replicator.counts
        rate = f" ({size_words(self.state.bytes_copied / self.state.seconds)}/s)" if self.state.seconds > 0 else ""
        done = f"{len(items) - len(failed)} ledgers done, {len(failed)} not"
        self.env.note(f"{done}; copied {counts.entries_written} entries, {size_words(counts.bytes_written)}{rate}")
        for item in failed[:SHOWN_MAX]:
            subject = f"ledger {item['ledger_id']}: "
            self.env.note(f"{subject}{item['error'].removeprefix(subject)}")
        if failed and begun:
            self.env.note(f"the same command retries these; the job's state is in {self.file.path}")


class Working:
    """Shows a job's progress, and how to resume it after an interruption."""

    def __init__(self, session: Session, total: int) -> None:
        self._session = session
        self._bar = session.env.progress("ledgers", total)
        self._written = session.job.replicator.counts.bytes_written
        self._controlled = session.controlled()

    def __enter__(self) -> Working:
        self._controlled.__enter__()
        return self

    def __call__(self, result: MoveResult) -> None:
        now = self._session.job.replicator.counts.bytes_written
        self._bar.add(1, now - self._written)
        self._written = now

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from bkrecovery.job_state import keep_measured_rate

        from bkctl.world import PrivateDisk

        self._bar.end()
        session = self._session
        session.record.save()
        self._controlled.__exit__(kind)
        if kind is not None:
            session.env.note(
                f"stopped; the same command continues from here (the job's state is in {session.file.path})"
            )
        elif session.job.replicator.counts.bytes_written >= MEASURED_BYTES_MIN and not session.arguments.rate:
            keep_measured_rate(
                PrivateDisk(), session.directory, session.state.bytes_copied / max(session.state.seconds, 1e-3)
            )


class Controlled:
    """Executes requests of `bkctl job rate|cancel` for a block.

    Args:
        set_rate: takes bytes or ledgers a second, as the job counts; 0 for no limit.
        set_parallel: takes ledgers at a time; None where that cannot be changed.

    Raises:
        Conflict: at its end, if another command cancelled the job.
    """

    def __init__(
        self,
        env: Env,
        file: JobFile,
        record: JobRecord,
        set_rate: Callable[[float], None],
        set_parallel: Callable[[int], None] | None,
    ) -> None:
        from bkrecovery.job_control import ControlFile

        from bkctl.world import PrivateDisk

        self._env = env
        self._record = record
        self._set_rate = set_rate
        self._set_parallel = set_parallel
        self._file = ControlFile(PrivateDisk(), file.path)
        self._by: str | None = None

    def __enter__(self) -> None:
        import asyncio

        self._worker = asyncio.current_task()
        self._obeys = asyncio.get_running_loop().create_task(self._obey(), name="requests to the job")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import asyncio

        self._obeys.cancel()
        if self._by is not None and kind is asyncio.CancelledError:
            assert self._worker is not None
            self._worker.uncancel()
            raise Conflict(f"the job was cancelled by {self._by}", hint="completed work is kept")

    async def _obey(self) -> None:
        self._by = await self._file.obey(self._apply, self._env.warn)
        assert self._worker is not None
        self._worker.cancel()

    def _apply(self, asked: JobControl) -> None:
        note = self._record.state.note
        if asked.rate is not None and asked.rate != note.get("rate"):
            self._set_rate(asked.rate)
            note["rate"] = asked.rate
            self._env.note(
                f"the rate limit is {asked.rate:g} per second now" if asked.rate > 0 else "the rate is unlimited now"
            )
        if asked.parallel is not None and self._set_parallel is not None and asked.parallel != note.get("parallel"):
            self._set_parallel(asked.parallel)
            note["parallel"] = asked.parallel
            self._env.note(f"{asked.parallel} concurrent ledgers now")
        self._record.save()


def started_by(env: Env, rate: float, parallel: int | None) -> dict[str, Any]:
    """The process that runs a job, as stored in its state."""
    import os
    import shlex

    command = shlex.join(["bkctl", *env.arguments]) if env.arguments else None
    return {"by": who(env), "pid": os.getpid(), "command": command, "rate": rate, "parallel": parallel}


@asynccontextmanager
async def job_session(
    env: Env,
    cluster: ClusterAccess,
    kind: str,
    bookies: Sequence[BookieId],
    arguments: JobArguments,
    options: JobOptions,
    *,
    subjects: Sequence[str] | None = None,
    job_class: type[MoveJob] | None = None,
) -> AsyncIterator[Session]:
    """A job on a client of its own, which speaks v2 for its batch reads, with what an earlier run remembers of it."""
    from bkrecovery.drain import DrainClaims, drained, refuse_drained
    from bkrecovery.job import JobRecord, MoveJob
    from bkrecovery.pace import ByteRate
    from bkrecovery.rereplicate import Replicator

    from bkctl.client.client import BookKeeper
    from bkctl.client.config import ClientConfig
    from bkctl.world import real_world

    bytes_per_s = arguments.bytes_per_s
    to = frozenset(map(parse_bookie_id, arguments.to)) if arguments.to else None
    claims = await DrainClaims(cluster.store, cluster.root).all()
    refuse_drained(claims, to or ())
    await check_targets(cluster, to or frozenset(), frozenset(bookies))
    options = replace(
        options,
        parallel=arguments.parallel or options.parallel,
        max_errors=arguments.max_errors,
        to=to,
        avoided=drained(claims),
    )
    file, state = remembered(env, cluster, kind, subjects or list(bookies), arguments)
    config = replace(ClientConfig.of(env.properties), version=2)
    try:
        async with BookKeeper(await cluster.ledgers(), cluster.bookies, real_world(), config) as client:
            replicator = Replicator(client.context, ByteRate(bytes_per_s))
            record = JobRecord(state, file)
            replicator.log = record.copies
            job = (job_class or MoveJob)(client, frozenset(bookies), replicator, options)
            yield Session(env, job, file, state, record, arguments, claims)
    finally:
        file.close()


async def check_targets(cluster: ClusterAccess, to: frozenset[BookieId], emptied: frozenset[BookieId]) -> None:
    """Checks that every bookie of --to accepts copies.

    Raises:
        UsageError: it is to be emptied. NotFound: the cluster does not know it. Refused: it is read-only. Unavailable:
            it is down.
    """
    for bookie in sorted(to & emptied):
        raise UsageError(f"--to {bookie}: it is being emptied itself")
    registered = await cluster.bookies.registered() if to else None
    for bookie in sorted(to - registered.writable) if registered is not None else ():
        if registered is not None and bookie in registered.read_only:
            raise Refused(f"bookie {bookie} is read-only: it accepts no copies", bookie_id=bookie)
        if bookie in await cluster.bookies.known():
            raise Unavailable(f"bookie {bookie} is down: it accepts no copies", bookie_id=bookie)
        raise NotFound(f"bookie {bookie} does not exist", hint="bkctl bookie list", bookie_id=bookie)


async def missing_ledgers(store: LedgerStore, ledger_ids: Sequence[int]) -> list[int]:
    """The ids without a ledger; a ledger with broken metadata exists, and the plan reports it.

    Raises:
        NoSuchLedger: none of the ledgers exists.
    """
    broken: set[int] = set()
    found = {record.ledger_id async for record in store.read_many(ledger_ids, lambda e, _: broken.add(e))}
    if found.isdisjoint(ledger_ids) and broken.isdisjoint(ledger_ids):
        raise NoSuchLedger(f"not in the metadata store: ledger {', '.join(map(str, ledger_ids))}")
    return [ledger_id for ledger_id in ledger_ids if ledger_id not in found | broken]


def missing_item(ledger_id: int) -> dict[str, Any]:
    """An id without a ledger."""
    return blocked_item(ledger_id, "it is not in the metadata store")


def remembered(
    env: Env, cluster: ClusterAccess, kind: str, subjects: Sequence[str], arguments: JobMemory
) -> tuple[JobFile, JobState]:
    """The file of a job, and its state."""
    from bkrecovery.job_state import JobFile, state_path

    from bkctl.world import PrivateDisk, real_world

    where = f"{','.join(sorted(cluster.uri.hosts))}{cluster.root}"
    path = arguments.state or state_path(env.state_dir / "jobs", kind, where, subjects)
    file = JobFile(PrivateDisk(), path, restart=arguments.restart)
    return file, file.load(kind, where, subjects, real_world().clock.now_ms())


def result_item(result: MoveResult) -> dict[str, Any]:
    """The result of one ledger."""
    error = result.error
    if error is None and result.waiting:
        error = "it is open, and its writer still uses the bookie"
    return {
        "ledger_id": result.ledger_id,
        "fragments": result.fragments,
        "fenced": result.fenced,
        "error": error,
    }


def blocked_item(ledger_id: int, reason: str) -> dict[str, Any]:
    """One ledger that was not tried."""
    return {"ledger_id": ledger_id, "fragments": 0, "fenced": False, "error": reason}


def _summary(what: str, plan: MovePlan) -> str:
    closed = len(plan.moves) - len(plan.fences) - len(plan.waits)
    words = f"{what}: copy the entries of {len(plan.moves)} ledgers to other bookies"
    if plan.fences:
        words += f", {len(plan.fences)} of them open: their writers will be fenced"
    if plan.waits:
        words += f", {len(plan.waits)} of them open: waiting for their writers"
    if plan.size_bytes:
        words += f", {size_words(plan.size_bytes)} of {'the closed' if closed < len(plan.moves) else 'closed'} ones"
    if plan.blocked:
        words += f"; {len(plan.blocked)} ledgers are skipped"
    return words


def _move_words(move: Any) -> str:
    words = f"ledger {move.ledger_id}: "
    if move.fence:
        words += "wait for its writer; " if move.waits else "fence and close it; "
    words += f"{len(move.fragments)} fragments, about {move.entries} entries"
    pairs = {
        (fragment.bookies[index], target)
        for fragment, targets in zip(move.fragments, move.targets, strict=True)
        for index, target in targets.items()
    }
    shown = ", ".join(f"{old} → {new}" for old, new in sorted(pairs)[:3])
    return f"{words}: {shown}{' …' if len(pairs) > 3 else ''}" if shown else words
