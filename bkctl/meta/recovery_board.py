"""Nodes of bkctl's auto recovery processes and commands: `underreplication/bkctl/…`.

    auditor           ephemeral of the auditor: it accepts requests. Another's session means a Java auditor
    requests/q_####   written by a command, deleted by the auditor once the check has ended and its result is stored
    results/<check>   the last run
    workers/<name>    ephemeral, what a worker does
    lost/<ledger>     ledgers with entries that no bookie has

Java does not read them. Nothing depends on them: without them, the next check finds everything again.
"""

from __future__ import annotations

import logging
from typing import Final

from bkctl.codec.recovery_notes import (
    AuditorNote,
    CheckName,
    CheckRequest,
    CheckResult,
    LostNote,
    RecordT,
    WorkerNote,
)
from bkctl.errors import AlreadyExists, Corrupt, NotFound, Refused
from bkctl.meta import paths
from bkctl.meta.election import Election
from bkctl.meta.store import Cancel, MetadataStore, Node, WatchCallback

REQUESTS_MAX: Final = 100
"""Maximum number of queued requests; more are refused."""
LOST_MAX: Final = 10_000
"""Maximum number of recorded ledgers with lost entries."""
WRITE_ROUNDS_MAX: Final = 5

_log = logging.getLogger(__name__)


class RecoveryBoard:
    """The notes below a root."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self.store = store
        self.base = f"{root}/{paths.UNDERREPLICATION}/bkctl"
        self._election = Election(store, root)
        self._auditor = f"{self.base}/auditor"
        self._requests = f"{self.base}/requests"
        self._results = f"{self.base}/results"
        self._workers = f"{self.base}/workers"
        self._lost = f"{self.base}/lost"

    async def ensure(self) -> None:
        """Creates the directories."""
        for path in (self._requests, self._results, self._workers, self._lost):
            try:
                await self.store.create(path, b"", parents=True)
            except AlreadyExists:
                pass

    # -- the auditor ----------------------------------------------------------------------------------------------

    async def announce(self, note: AuditorNote) -> None:
        """Announces that this session's auditor accepts requests."""
        await self._put_ephemeral(self._auditor, note.encode())

    async def withdraw(self) -> None:
        """Deletes the announcement."""
        await self._drop_own(self._auditor)

    async def auditor_listens(self) -> bool:
        """True if the elected auditor is one of bkctl's."""
        votes = await self._election.votes()
        stat = await self.store.exists(self._auditor)
        return bool(votes) and stat is not None and stat.ephemeral_owner == votes[0].session_id

    # -- requests -------------------------------------------------------------------------------------------------

    async def ask(self, request: CheckRequest) -> str:
        """Writes a request; returns its name.

        Raises:
            Refused: too many requests are queued.
        """
        await self.ensure()
        waiting = len(await self._names(self._requests))
        if waiting >= REQUESTS_MAX:
            raise Refused(f"{waiting} requests for checks are already queued")
        path = await self.store.create(f"{self._requests}/q_", request.encode(), sequence=True, parents=True)
        return path.rpartition("/")[2]

    async def pending(self) -> dict[str, CheckRequest]:
        """The queued requests, by name, oldest first."""
        names = await self._names(self._requests)
        requests = await self._read(self._requests, names, CheckRequest)
        return {name: request for name, request in zip(names, requests, strict=True) if request is not None}

    async def waits(self, name: str) -> bool:
        """True while a request was not answered."""
        return await self.store.exists(f"{self._requests}/{name}") is not None

    async def answered(self, name: str) -> None:
        """Deletes a request whose check has ended or is no longer requested."""
        await self._drop(f"{self._requests}/{name}")

    async def watch_requests(self, callback: WatchCallback) -> Cancel:
        """Calls back once, when a request is created or deleted."""
        await self.ensure()
        return await self.store.watch_children(self._requests, callback)

    async def watch_request(self, name: str, callback: WatchCallback) -> Cancel:
        """Calls back once, when this request is answered."""
        return await self.store.watch_data(f"{self._requests}/{name}", callback)

    # -- results --------------------------------------------------------------------------------------------------

    async def keep(self, result: CheckResult) -> None:
        """Stores a result, replacing the one before."""
        await self._put(f"{self._results}/{result.check.value}", result.encode())

    async def result(self, check: CheckName) -> CheckResult | None:
        """The last run of a check; without one: None."""
        return (await self._read(self._results, [check.value], CheckResult))[0]

    # -- workers --------------------------------------------------------------------------------------------------

    async def publish(self, name: str, note: WorkerNote) -> None:
        """Publishes the state of a worker of this session."""
        await self._put_ephemeral(f"{self._workers}/{name}", note.encode())

    async def unpublish(self, name: str) -> None:
        """Deletes the announcement."""
        await self._drop_own(f"{self._workers}/{name}")

    async def workers(self) -> dict[int, WorkerNote]:
        """The states of bkctl's workers, by metadata session."""
        places = [f"{self._workers}/{name}" for name in await self._names(self._workers)]
        found: dict[int, WorkerNote] = {}
        for path, node in zip(places, await self.store.get_many(places), strict=True):
            note = _decoded(WorkerNote, path, node)
            if node is not None and note is not None:
                found[node.stat.ephemeral_owner] = note
        return found

    # -- lost entries ---------------------------------------------------------------------------------------------

    async def note_lost(self, note: LostNote) -> None:
        """Records that a ledger has lost entries, replacing an earlier record; not above LOST_MAX ledgers."""
        path = f"{self._lost}/{note.ledger_id}"
        if await self.store.exists(path) is None and len(await self._names(self._lost)) >= LOST_MAX:
            return
        await self._put(path, note.encode())

    async def lost_ids(self) -> set[int]:
        """The recorded ledgers."""
        return {int(name) for name in await self._names(self._lost) if name.isdecimal()}

    async def lost(self, ledger_ids: list[int]) -> dict[int, LostNote]:
        """The existing records of these ledgers."""
        found = await self._read(self._lost, [str(ledger_id) for ledger_id in ledger_ids], LostNote)
        return {note.ledger_id: note for note in found if note is not None}

    async def forget_lost(self, ledger_id: int) -> bool:
        """Deletes a record, so that workers retry at once; False if it did not exist."""
        return await self._drop(f"{self._lost}/{ledger_id}")

    # -- nodes ----------------------------------------------------------------------------------------------------

    async def _names(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NotFound:
            return []

    async def _read(self, directory: str, names: list[str], record: type[RecordT]) -> list[RecordT | None]:
        places = [f"{directory}/{name}" for name in names]
        nodes = await self.store.get_many(places) if places else []
        return [_decoded(record, path, node) for path, node in zip(places, nodes, strict=True)]

    async def _put(self, path: str, data: bytes) -> None:
        """Replaces the node; the last writer wins."""
        for _ in range(WRITE_ROUNDS_MAX):
            try:
                await self.store.create(path, data, parents=True)
                return
            except AlreadyExists:
                pass
            try:
                await self.store.overwrite(path, data)
                return
            except NotFound:
                continue

    async def _put_ephemeral(self, path: str, data: bytes) -> None:
        """Writes a node of this session; one of another session is in the way and is replaced."""
        for _ in range(WRITE_ROUNDS_MAX):
            stat = await self.store.exists(path)
            try:
                if stat is not None and stat.ephemeral_owner == self.store.session_id:
                    await self.store.overwrite(path, data)
                    return
                if stat is not None:
                    await self.store.delete_any(path)
                await self.store.create(path, data, ephemeral=True, parents=True)
                return
            except (NotFound, AlreadyExists):
                continue

    async def _drop_own(self, path: str) -> None:
        stat = await self.store.exists(path)
        if stat is not None and stat.ephemeral_owner == self.store.session_id:
            await self._drop(path)

    async def _drop(self, path: str) -> bool:
        try:
            await self.store.delete_any(path)
        except NotFound:
            return False
        return True


def _decoded(record: type[RecordT], path: str, node: Node | None) -> RecordT | None:
    """Returns a note, or None; a note that cannot be decoded is logged and ignored, as nothing depends on it."""
    if node is None:
        return None
    try:
        return record.decode(node.data, source=path)
    except Corrupt as e:
        _log.warning("%s", e)
        return None
