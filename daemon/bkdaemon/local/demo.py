"""`bkctl demo`: a ledger survives a dead bookie and a dead writer, with real processes.

Everything is done by commands that an operator can run; this module starts them, kills processes at the right moment,
and compares the acknowledged entries with those that are read.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bkctl.errors import ServerError, Unavailable
from bkdaemon.local.cluster import LocalCluster
from bkdaemon.local.process import Process, birth_of

BOOKIES: Final = 4
ENSEMBLE_SIZE: Final = 3
WRITE_QUORUM_SIZE: Final = 3
ACK_QUORUM_SIZE: Final = 2
KILL_AFTER: Final = 5_000
"""Entries that are acknowledged when the bookie is killed, so that it fails in the middle of the writing."""
FEED_BEFORE_KILL: Final = 12_000
"""Entries passed to the writer before the kill: more than are acknowledged, fewer than all."""
FEED_CHUNK: Final = 500
STEP_TIMEOUT_S: Final = 60.0
LINE_BYTES_MAX: Final = 1 << 20
_FENCED: Final = ("ledger_fenced", "ledger_closed")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the demo: its title, a description of the result, and whether that is the expected one."""

    step: int
    title: str
    words: str
    ok: bool
    seconds: float
    facts: Mapping[str, object] = field(default_factory=dict)


class Demo:
    """The steps of the demo.

    Args:
        entries: number of entries to write.
        environ: environment of the started processes.
    """

    def __init__(self, entries: int, environ: Mapping[str, str]) -> None:
        self.entries = entries
        self.environ = {k: v for k, v in environ.items() if not k.startswith("BKCTL_")}
        self.acked: set[int] = set()
        self._cluster = LocalCluster(Path(), [], {})
        self._uri = ""
        self._ledger = -1
        self._killed = ""
        self._count = 0
        self._since = 0.0

    async def steps(self) -> AsyncGenerator[Step]:
        """Runs the steps; stops at a failed step, and always cleans up."""
        self._since = asyncio.get_running_loop().time()
        with tempfile.TemporaryDirectory(prefix="bkctl-demo-", ignore_cleanup_errors=True) as home:
            self._cluster = LocalCluster.plan(Path(home) / "cluster", BOOKIES, self.environ)
            self._uri = self._cluster.metadata_uri
            try:
                yield await self._start_cluster()
                async with self._writer() as writer:
                    async for step in self._with_writer(writer):
                        yield step
                yield await self._read_back()
            finally:
                await self._clean_up()

    async def _with_writer(self, writer: _Writer) -> AsyncIterator[Step]:
        yield await self._write(writer)
        yield await self._fragments()
        yield await self._stop_writer(writer)
        yield await self._recover()
        yield await self._old_writer(writer)

    # -- the steps

    async def _start_cluster(self) -> Step:
        await self._cluster.up()
        bookies = [s.bookie_id for s in self._cluster.bookies]
        words = f"A real ZooKeeper and {len(bookies)} bookies run, each a process of its own: {', '.join(bookies)}."
        return self._step("start a cluster", words, True, {"metadata_uri": self._uri, "bookies": bookies})

    async def _write(self, writer: _Writer) -> Step:
        """Writes entries, and kills a bookie of the ensemble in the middle."""
        await writer.feed(0, FEED_CHUNK)
        await writer.confirmed(1, self.acked)
        self._ledger = writer.ledger_id
        shown = await self._bkctl("ledger", "show", str(self._ledger))
        victim = next(s for s in self._cluster.bookies if s.bookie_id == shown["ensembles"][-1]["bookies"][0])
        before = asyncio.create_task(writer.feed(FEED_CHUNK, FEED_BEFORE_KILL), name="feed before the kill")
        await writer.confirmed(KILL_AFTER, self.acked)
        at_kill = len(self.acked)
        await self._cluster.kill(victim.kind, victim.number)
        self._killed = victim.bookie_id
        await before
        after = asyncio.create_task(writer.feed(FEED_BEFORE_KILL, self.entries), name="feed after the kill")
        await writer.confirmed(self.entries, self.acked)
        await after
        words = (
            f"A writer process added {self.entries} entries to ledger {self._ledger} (ensemble {ENSEMBLE_SIZE}, "
            f"write quorum {WRITE_QUORUM_SIZE}, ack quorum {ACK_QUORUM_SIZE}). When {at_kill} were acknowledged, "
            f"bookie {self._killed} was killed with SIGKILL. All {len(self.acked)} are acknowledged."
        )
        facts = {"ledger_id": self._ledger, "killed_bookie": self._killed, "acknowledged_at_kill": at_kill}
        return self._step("kill a bookie while a writer writes", words, len(self.acked) == self.entries, facts)

    async def _fragments(self) -> Step:
        listing = await self._bkctl("ledger", "fragments", str(self._ledger))
        fragments = listing["items"]
        last = fragments[-1]
        ok = len(fragments) > 1 and self._killed not in last["bookies"]
        words = (
            f"The ledger has {len(fragments)} fragments now: from entry {last['first_entry_id']} on its entries are on "
            f"{', '.join(last['bookies'])}, without the dead bookie."
        )
        return self._step("show the new fragment", words, ok, {"fragments": fragments})

    async def _stop_writer(self, writer: _Writer) -> Step:
        writer.process.send(signal.SIGSTOP)
        shown = await self._bkctl("ledger", "show", str(self._ledger))
        words = f"The writer was stopped with SIGSTOP before it closed the ledger, which is {shown['state']}."
        return self._step("stop the writer", words, shown["state"] == "OPEN", {"state": shown["state"]})

    async def _recover(self) -> Step:
        await self._bkctl("ledger", "recover", str(self._ledger), "--yes")
        shown = await self._bkctl("ledger", "show", str(self._ledger))
        ok = shown["state"] == "CLOSED" and shown["last_entry_id"] >= max(self.acked, default=-1)
        words = (
            f"Another process fenced the ledger, recovered its last entry {shown['last_entry_id']}, and closed it: "
            f"{shown['state']}, {shown['length']} bytes."
        )
        facts = {name: shown[name] for name in ("state", "last_entry_id", "length")}
        return self._step("recover the ledger as another client", words, ok, facts)

    async def _old_writer(self, writer: _Writer) -> Step:
        writer.process.send(signal.SIGCONT)
        kind, code, late = await writer.one_more(self.entries)
        ok = kind in _FENCED and not late
        words = (
            f"The old writer continued (SIGCONT) and tried to add one more entry. It got {kind!r} and ended with "
            f"exit {code}; the entry was not acknowledged."
        )
        if not ok:
            words = f"The old writer continued and was not fenced: it got {kind!r}, exit {code}, acknowledged {late}."
        return self._step("resume the old writer", words, ok, {"kind": kind, "exit_code": code})

    async def _read_back(self) -> Step:
        """Reads the whole ledger with its digests, and compares every acknowledged entry."""
        command = self.command("ledger", "read", str(self._ledger), "-o", "jsonl")
        reader = await asyncio.create_subprocess_exec(
            *command, stdout=-1, stderr=-1, env=self.environ, limit=LINE_BYTES_MAX, start_new_session=True
        )
        assert reader.stdout is not None
        assert reader.stderr is not None
        errors = asyncio.create_task(reader.stderr.read(), name="stderr of the reader")
        missing, wrong = set(self.acked), 0
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                async for line in reader.stdout:
                    entry = json.loads(line)
                    missing.discard(entry["entry_id"])
                    wrong += not entry["digest_ok"] or entry["payload"] != _base64(payload(entry["entry_id"]))
                code = await reader.wait()
        finally:
            if reader.returncode is None:
                reader.kill()
        ok = not missing and not wrong and code == 0
        words = f"All {len(self.acked)} acknowledged entries were read; every digest and payload is valid."
        if not ok:
            last = (await errors).decode("utf-8", "replace").strip()[-200:]
            words = (
                f"{len(missing)} acknowledged entries are missing, {wrong} are wrong; the reader's exit {code} {last}"
            )
        errors.cancel()
        facts = {"acknowledged": len(self.acked), "missing": len(missing), "wrong": wrong}
        return self._step("read all entries", words, ok, facts)

    # -- tools

    def _step(self, title: str, words: str, ok: bool, facts: Mapping[str, object]) -> Step:
        now = asyncio.get_running_loop().time()
        seconds, self._since = round(now - self._since, 2), now
        self._count += 1
        return Step(self._count, title, words, ok, seconds, facts)

    def command(self, *arguments: str) -> list[str]:
        """Returns a bkctl command line for the demo's cluster."""
        return [sys.executable, "-m", "bkctl", "-m", self._uri, *arguments]

    async def _bkctl(self, *arguments: str) -> Any:
        """Runs one command and returns its JSON.

        Raises:
            ServerError: the exit code is not 0. Unavailable: it did not end in time.
        """
        out = await self._run_bkctl(*arguments, "-o", "json")
        return json.loads(out) if out.strip() else None

    async def _run_bkctl(self, *arguments: str) -> bytes:
        """Runs one command and returns its stdout; raises the errors of _bkctl."""
        child = await asyncio.create_subprocess_exec(
            *self.command(*arguments), stdout=-1, stderr=-1, env=self.environ, start_new_session=True
        )
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                out, err = await child.communicate()
        except TimeoutError:
            raise Unavailable(f"bkctl {' '.join(arguments)}: not finished within {STEP_TIMEOUT_S:g} s") from None
        finally:
            if child.returncode is None:
                child.kill()
        if child.returncode != 0:
            words = err.decode("utf-8", "replace").strip()
            raise ServerError(f"bkctl {' '.join(arguments)}: {words}", status=child.returncode or -1)
        return out

    @asynccontextmanager
    async def _writer(self) -> AsyncIterator[_Writer]:
        """Starts the writer, and kills it at the end of the block."""
        quorums = (ENSEMBLE_SIZE, WRITE_QUORUM_SIZE, ACK_QUORUM_SIZE)
        names = ("--ensemble-size", "--write-quorum-size", "--ack-quorum-size")
        options = [part for name, size in zip(names, quorums, strict=True) for part in (name, str(size))]
        child = await asyncio.create_subprocess_exec(
            *self.command("ledger", "write", "--new", *options, "--yes", "-o", "jsonl"),
            stdin=-1,
            stdout=-1,
            stderr=-1,
            env=self.environ,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        try:
            yield _Writer(child)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

    async def _clean_up(self) -> None:
        """Kills all running services; neither ^C nor a time limit interrupts it."""
        held = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        killing = asyncio.gather(*(self._cluster.kill(s.kind, s.number) for s in self._cluster.services))
        try:
            while not killing.done():
                with suppress(asyncio.CancelledError):  # cancelled before the signals were ignored, or by a time limit
                    await asyncio.shield(killing)
            killing.result()
        finally:
            for number, handler in held.items():
                signal.signal(number, handler)


class _Writer:
    """The writer process: it reads lines and reports acknowledged entries."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child, self._in, self._out, self._err = child, child.stdin, child.stdout, child.stderr
        self.process = Process(child.pid, birth_of(child.pid) or "")
        self.ledger_id = -1

    async def feed(self, first: int, end: int) -> None:
        """Passes the entries first … end − 1 to it, as fast as it reads them."""
        for start in range(first, end, FEED_CHUNK):
            self._in.write(b"".join(payload(n) + b"\n" for n in range(start, min(start + FEED_CHUNK, end))))
            await self._in.drain()

    async def confirmed(self, count: int, acked: set[int]) -> None:
        """Waits until count entries are acknowledged; adds their ids to acked.

        Raises:
            ServerError: the writer ended. Unavailable: the time limit was reached.
        """
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                while len(acked) < count:
                    line = await self._out.readline()
                    if not line:
                        words = (await self._err.read()).decode("utf-8", "replace").strip()
                        raise ServerError(f"the writer ended: {words}", status=await self._child.wait())
                    entry = json.loads(line)
                    self.ledger_id = entry["ledger_id"]
                    acked.add(entry["entry_id"])
        except TimeoutError:
            raise Unavailable(f"{len(acked)} of {count} entries acknowledged within {STEP_TIMEOUT_S:g} s") from None

    async def one_more(self, number: int) -> tuple[str, int, list[int]]:
        """Passes one more entry and waits for its end: (kind of the error, exit code, ids acknowledged meanwhile)."""
        self._in.write(payload(number) + b"\n")
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                out, err = await asyncio.gather(self._out.read(), self._err.read())
                code = await self._child.wait()
        except TimeoutError:
            return "nothing", -1, []
        late = [json.loads(line)["entry_id"] for line in out.splitlines()]
        records = [json.loads(line) for line in err.decode("utf-8").splitlines() if line.startswith('{"error"')]
        return (records[-1]["error"]["kind"] if records else "nothing"), code, late


def payload(entry_id: int) -> bytes:
    """Returns the payload of an entry, which is unique and has 40 to 140 bytes."""
    return f"entry {entry_id} {random.Random(entry_id).randbytes(20 + entry_id % 50).hex()}".encode()


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode("ascii")
