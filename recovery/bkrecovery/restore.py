"""Restores copies that an audit found missing or damaged, on their own bookies, from the other replicas.

    finding                          what is done
    BKC401, BKC107, BKC404 (one      read from the other bookies of the write set, digest checked; added to the bookie
    bookie), BKC405, BKC351, BKC353, as they were sealed, as a recovery add; read back
    BKC103 where the entry is known
    BKC352 (a log is gone)           the same for what the bookie does not give of the ledgers that were in it
    BKC403, BKC421, BKC422           nothing is copied here: the ledgers are marked, and replication workers move them
    everything else                  left: no copy can be made of it, or a person has to decide

The metadata stays as it is, so an ensemble with a bookie that is well is not changed for one bad sector; nothing is
fenced, and an entry that meanwhile has another write set is left alone. What is sound by now is not written again, so
a repair that was stopped resumes when it is started again. The old record stays in the bookie's log until compaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bkctl.client.client import BookKeeper
from bkctl.codec import availability
from bkctl.codec.checksum import Digest, master_key
from bkctl.codec.entry import decode_entry
from bkctl.codec.wire import Flag
from bkctl.errors import BadBytes, BkctlError, NoSuchLedger
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId, LedgerId, parse_bookie_id
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.recovery import status_name
from bkrecovery.calls import add_entries, read_entries

CHUNK_ENTRIES_MAX: Final = 256
"""Entries of one bookie in flight together."""
HOLES_MAX: Final = 100_000
"""In one plan; what is above is left for another run of it."""
COPIED: Final = frozenset(("BKC401", "BKC103", "BKC107", "BKC404", "BKC405", "BKC351", "BKC353"))
LOG_GONE: Final = "BKC352"
LOST_BOOKIE: Final = "BKC403"
MISPLACED: Final = frozenset(("BKC421", "BKC422"))
DIVERGENT: Final = "BKC404"
UNLISTED: Final = "BKC401"
V3: Final = 3
"""The list of entries is not in the older protocol."""

FindingItem = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hole:
    """Entries first_entry_id to last_entry_id (None: to the end) that one bookie should give and does not.

    sure: the bookie's copy is wrong although its digest is valid, so it is always replaced.
    """

    ledger_id: int
    bookie: BookieId
    first_entry_id: int
    last_entry_id: int | None
    code: str
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """A finding that is not repaired here, and the next step for it."""

    code: str
    subject: str
    next: str
    ledger_id: int | None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """holes by ledger, ascending; marks: ledger → bookies whose copies it lacks; lost_bookies: all their ledgers."""

    holes: tuple[Hole, ...]
    marks: Mapping[int, tuple[BookieId, ...]]
    lost_bookies: tuple[BookieId, ...]
    left: tuple[Left, ...]

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers with holes."""
        return sorted({hole.ledger_id for hole in self.holes})


@dataclass(slots=True)
class Restored:
    """The result for one hole. copied is 0 if the bookie already returned valid copies."""

    hole: Hole
    copied: int = 0
    error: str | None = None


def plan_of(findings: Iterable[FindingItem], *, mark: bool = False) -> RestorePlan:
    """Plans the repair of findings; mark: ledgers with holes are marked for workers instead of copied."""
    holes: list[Hole] = []
    marks: dict[int, list[BookieId]] = {}
    lost: list[BookieId] = []
    left: list[Left] = []
    for item in findings:
        code, ledger_id, bookie = str(item["code"]), item["ledger_id"], item["bookie_id"]
        own = _holes(item)
        if own and mark:
            for hole in own:
                marks.setdefault(hole.ledger_id, []).append(hole.bookie)
        elif own and len(holes) + len(own) <= HOLES_MAX:
            holes += own
        elif code in MISPLACED and mark and ledger_id is not None:
            marks.setdefault(ledger_id, [])
        elif code == LOST_BOOKIE and mark and bookie is not None:
            lost.append(parse_bookie_id(bookie))
        else:
            left.append(Left(code, str(item["subject"]), _next(item, bool(own)), ledger_id))
    ordered = sorted(set(holes), key=lambda hole: (hole.ledger_id, hole.bookie, hole.first_entry_id, hole.code))
    unique = {ledger_id: tuple(dict.fromkeys(bookies)) for ledger_id, bookies in sorted(marks.items())}
    return RestorePlan(tuple(ordered), unique, tuple(dict.fromkeys(lost)), tuple(left))


def _holes(item: FindingItem) -> list[Hole]:
    code, ledger_id, entry_id, bookie = item["code"], item["ledger_id"], item["entry_id"], item["bookie_id"]
    if bookie is None:
        return []
    holder = parse_bookie_id(bookie)
    if code == LOG_GONE:
        return [Hole(one, holder, 0, None, code) for one in item["evidence"].get("ledgers", ())]
    if code not in COPIED or ledger_id is None or entry_id is None:
        return []
    last = item["evidence"].get("last_entry_id", entry_id)
    return [Hole(ledger_id, holder, entry_id, last, code, code == DIVERGENT)]


def _next(item: FindingItem, too_many: bool) -> str:
    if too_many:
        return f"more than {HOLES_MAX} at once: audit again after this repair"
    if item["code"] == LOST_BOOKIE:
        return f"bkctl bookie recover {item['bookie_id']}, or --mark"
    if item["code"] in MISPLACED:
        return "--mark lets a replication worker move it"
    return str(item["next"] or "")


class Restorer:
    """Executes a plan."""

    def __init__(self, bookkeeper: BookKeeper) -> None:
        self._bookkeeper = bookkeeper

    async def apply(self, plan: RestorePlan, done: Callable[[Restored], None] = lambda _: None) -> list[Restored]:
        """Writes the missing copies, ledger by ledger; continues after failures. done is called for each ledger."""
        results: list[Restored] = []
        wrong = {(h.ledger_id, h.bookie): h for h in plan.holes if h.sure}
        for hole in plan.holes:
            result = Restored(hole)
            try:
                await _Filling(self._bookkeeper, result, wrong).run()
            except NoSuchLedger:
                pass  # deleted meanwhile: it lacks nothing
            except BkctlError as e:
                result.error = str(e)
            results.append(result)
            done(result)
        return results

    async def mark(self, plan: RestorePlan, queue: Underreplication) -> dict[int, tuple[BookieId, ...]]:
        """Marks the plan's ledgers, and all that name a lost bookie that is still lost; returns what was new."""
        await queue.ensure()
        return {ledger: missing async for ledger, missing in self._marks(plan) if await queue.mark(ledger, missing)}

    async def _marks(self, plan: RestorePlan) -> AsyncIterator[tuple[int, tuple[BookieId, ...]]]:
        for ledger_id, bookies in plan.marks.items():
            yield ledger_id, bookies
        if not plan.lost_bookies:
            return
        registry = self._bookkeeper.registry
        lost = set(plan.lost_bookies) - await registry.writable() - await registry.read_only()
        ledgers = self._bookkeeper.ledgers
        async for ids in ledgers.ids():
            async for record in ledgers.read_many(ids, _pass_over):
                named = {bookie for e in record.metadata.ensembles for bookie in e.bookies} & lost
                if named:
                    yield record.ledger_id, tuple(sorted(named))


def _pass_over(_: LedgerId, __: BadBytes) -> None:
    """A ledger whose node cannot be read has a finding of its own."""


@dataclass(slots=True)
class _Filling:
    """One hole: the entries that the bookie should hold by the metadata of now."""

    bookkeeper: BookKeeper
    result: Restored
    wrong: Mapping[tuple[int, BookieId], Hole]
    metadata: LedgerMetadata = field(init=False)
    digest: Digest = field(init=False)

    async def run(self) -> None:
        hole = self.result.hole
        self.metadata, _ = await self.bookkeeper.ledgers.read(hole.ledger_id)
        password = self.metadata.password or b""
        self.digest = await self.bookkeeper.find_digest(self.metadata, hole.ledger_id, password)
        wanted = [e for e in range(hole.first_entry_id, self._last() + 1) if hole.bookie in self._holders(e)]
        for start in range(0, len(wanted), CHUNK_ENTRIES_MAX):
            await self._fill(wanted[start : start + CHUNK_ENTRIES_MAX], master_key(password))

    def _last(self) -> int:
        """The last entry of the hole that the ledger counts; of one that is not closed, only what the finding named."""
        last, metadata = self.result.hole.last_entry_id, self.metadata
        if metadata.closed:
            return metadata.last_entry_id if last is None else min(last, metadata.last_entry_id)
        return metadata.last_ensemble.first_entry_id - 1 if last is None else last

    def _holders(self, entry_id: int) -> list[BookieId]:
        metadata = self.metadata
        ensemble = metadata.ensemble_of(entry_id).bookies
        return [ensemble[i] for i in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)]

    async def _fill(self, entry_ids: Sequence[int], key: bytes) -> None:
        hole, context = self.result.hole, self.bookkeeper.context
        lacking = list(entry_ids) if hole.sure else await self._unsound(entry_ids)
        if hole.code == UNLISTED:
            listed = await self._listed()
            lacking = [e for e in entry_ids if e in lacking or e not in listed]
        found: dict[int, bytes] = {}
        for turn in range(self.metadata.write_quorum_size):
            await self._read([e for e in lacking if e not in found], turn, found)
        if found:
            answers = await add_entries(
                context, hole.bookie, hole.ledger_id, key, sorted(found.items()), Flag.RECOVERY_ADD
            )
            refused = next((a.status for a in answers.values() if a.status != Status.OK), None)
            if refused is not None:
                self.result.error = f"{hole.bookie} refuses copies: {status_name(refused)}"
                return
            again = await read_entries(context, hole.bookie, hole.ledger_id, sorted(found))
            self.result.copied += sum(again[e].body == body for e, body in found.items())
            differing = [e for e, body in found.items() if again[e].body != body]
            if differing:
                self.result.error = f"{hole.bookie} still returns other bytes for entry {differing[0]}"
        missing = [e for e in lacking if e not in found]
        if missing:
            self.result.error = f"no valid copy of entry {missing[0]} and {len(missing) - 1} more on the other bookies"

    async def _listed(self) -> set[int]:
        """The entries that the bookie says it has: what it gives may come from memory, read ahead of an index that
        lacks it. Everything where it cannot say."""
        hole = self.result.hole
        connection = self.bookkeeper.context.pool.connection(hole.bookie, V3, hole.ledger_id)
        timeout_s = self.bookkeeper.context.config.read_timeout_s
        reply = await connection.call(lambda c: c.list_entries(hole.ledger_id), timeout_s)
        if reply.status == Status.NO_LEDGER:
            return set()
        if reply.status != Status.OK or reply.body is None:
            return set(range(hole.first_entry_id, self._last() + 1))
        runs = availability.decode(reply.body, source=f"{hole.bookie} ledger {hole.ledger_id}")
        return {entry_id for run in runs for entry_id in run}

    async def _unsound(self, entry_ids: Sequence[int]) -> list[int]:
        """Those that the bookie does not give as they were sealed."""
        hole = self.result.hole
        answers = await read_entries(self.bookkeeper.context, hole.bookie, hole.ledger_id, entry_ids)
        return [e for e in entry_ids if not self._sound(e, answers[e].body)]

    def _sound(self, entry_id: int, body: bytes | None) -> bool:
        if body is None:
            return False
        try:
            decode_entry(body, self.digest, self.result.hole.ledger_id, entry_id)
        except BadBytes:
            return False
        return True

    async def _read(self, wanted: Sequence[int], turn: int, found: dict[int, bytes]) -> None:
        """Each entry from the turn-th of its other bookies, but for those whose copies are wrong too."""
        hole = self.result.hole
        by_bookie: dict[BookieId, list[int]] = {}
        for entry_id in wanted:
            others = [b for b in self._holders(entry_id) if b != hole.bookie and not self._wrong(b, entry_id)]
            if turn < len(others):
                by_bookie.setdefault(others[turn], []).append(entry_id)
        for bookie, entry_ids in by_bookie.items():
            answers = await read_entries(self.bookkeeper.context, bookie, hole.ledger_id, entry_ids)
            for entry_id in entry_ids:
                body = answers[entry_id].body
                if body is not None and self._sound(entry_id, body):
                    found[entry_id] = body

    def _wrong(self, bookie: BookieId, entry_id: int) -> bool:
        known = self.wrong.get((self.result.hole.ledger_id, bookie))
        return known is not None and known.first_entry_id <= entry_id <= (known.last_entry_id or known.first_entry_id)
