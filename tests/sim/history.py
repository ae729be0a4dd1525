"""What clients did and saw, and the rules it must keep; checked while it happens and when everything is over.

payload             entry n holds the writer's n-th payload, for every reader
acked               an entry of which its writer heard that it is confirmed is never lost
one close           a closed ledger's metadata never changes again
fenced              no entry behind the end of a closed ledger is ever confirmed to its writer
LAC                 what a writer, or a reader, knows as last confirmed never moves back, and is never cut off
states              OPEN, IN_RECOVERY, CLOSED in this order; ensembles are added, and only the last one changes
repairs             with auto recovery: a settled ensemble may change bookies, not its place; nobody is in it twice
length              a closed ledger's length is the sum of its payloads
copies              each entry of a closed ledger is on Qa of its bookies
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bkctl.model.ledger import LedgerMetadata, LedgerState


class Violation(AssertionError):
    """A rule does not hold."""


@dataclass
class LedgerHistory:
    """One ledger."""

    payloads: list[bytes] = field(default_factory=list)
    acked: int = -1
    seen: int = -1  # the highest last confirmed that any reader was told
    metadata: LedgerMetadata | None = None
    version: int = -1
    deleted: bool = False
    length_guessed: bool = False  # recovery closed it while the bookies that know its length could be down


class History:
    """All ledgers of a run. Every method raises Violation at once when a rule is broken."""

    def __init__(self, *, repairs: bool = False) -> None:
        self.repairs = repairs
        self.ledgers: dict[int, LedgerHistory] = {}
        self.peace = False
        self.liars: set[str] = set()  # hosts whose drives lie, or lied, about syncs

    def appended(self, ledger_id: int, first: int, payloads: list[bytes]) -> None:
        """A writer gave these payloads the ids from first on."""
        ledger = self.ledgers[ledger_id]
        _check(first == len(ledger.payloads), "payload", ledger_id, f"id {first} for payload {len(ledger.payloads)}")
        ledger.payloads += payloads

    def confirmed(self, ledger_id: int, last_confirmed: int) -> None:
        """A writer heard that its entries up to this one are confirmed."""
        ledger = self.ledgers[ledger_id]
        _check(last_confirmed > ledger.acked, "LAC", ledger_id, f"confirmed {last_confirmed} after {ledger.acked}")
        _check(last_confirmed < len(ledger.payloads), "payload", ledger_id, f"confirmed {last_confirmed}, not written")
        ledger.acked = last_confirmed
        self._check_end(ledger_id, ledger)

    def saw(self, ledger_id: int, last_confirmed: int, before: int) -> None:
        """A reader heard of a last confirmed entry, after an earlier one."""
        ledger = self.ledgers[ledger_id]
        _check(last_confirmed >= before, "LAC", ledger_id, f"a reader saw {last_confirmed} after {before}")
        ledger.seen = max(ledger.seen, last_confirmed)
        self._check_end(ledger_id, ledger)

    def read(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """A reader got an entry."""
        payloads = self.ledgers[ledger_id].payloads
        _check(entry_id < len(payloads), "payload", ledger_id, f"entry {entry_id} was never written")
        _check(payload == payloads[entry_id], "payload", ledger_id, f"entry {entry_id} is not what was written")

    def changed(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> None:
        """The ledger's metadata may have changed: it has this version now."""
        ledger = self.ledgers.setdefault(ledger_id, LedgerHistory())
        if version == ledger.version or (ledger.deleted and metadata.state is LedgerState.OPEN):
            return  # the latter: its creation, sent again where no answer came, arrived once more; nobody names it
        ledger.version = version
        before, ledger.metadata = ledger.metadata, metadata
        if before is None:
            return
        if metadata.closed and before.state is LedgerState.IN_RECOVERY and not self.peace:
            ledger.length_guessed = True
        if self.repairs:
            if metadata == before:
                return  # somebody has written it again
            before = _repaired(ledger_id, before, metadata)
            if metadata == before:
                return
        _check(not before.closed, "one close", ledger_id, f"was closed at {before.last_entry_id}")
        _check(metadata.state >= before.state, "states", ledger_id, f"{before.state.name} to {metadata.state.name}")
        kept = metadata.ensembles[: len(before.ensembles) - 1] == before.ensembles[:-1]
        grown = len(metadata.ensembles) >= len(before.ensembles)
        _check(kept and grown, "states", ledger_id, f"ensembles {before.ensembles} to {metadata.ensembles}")
        _check(
            metadata.ensembles[len(before.ensembles) - 1].first_entry_id == before.last_ensemble.first_entry_id,
            "states",
            ledger_id,
            f"ensembles {before.ensembles} to {metadata.ensembles}",
        )
        self._check_end(ledger_id, ledger)

    def excused(self, ledger_id: int) -> bool:
        """True if a drive may have lied about an entry of this ledger: then it may be lost."""
        metadata = self.ledgers[ledger_id].metadata
        bookies = {b.partition(":")[0] for e in metadata.ensembles for b in e.bookies} if metadata else set()
        return not self.liars.isdisjoint(bookies)

    def _check_end(self, ledger_id: int, ledger: LedgerHistory) -> None:
        metadata = ledger.metadata
        if metadata is None or metadata.state is not LedgerState.CLOSED or self.excused(ledger_id):
            return
        end = metadata.last_entry_id
        _check(ledger.acked <= end, "acked", ledger_id, f"entry {ledger.acked} was confirmed, closed at {end}")
        _check(ledger.seen <= end, "LAC", ledger_id, f"a reader saw {ledger.seen}, closed at {end}")
        _check(end < len(ledger.payloads), "payload", ledger_id, f"closed at {end}, which was never written")

    def check_closed(self, ledger_id: int) -> None:
        """The ledger is closed for good: its length."""
        ledger = self.ledgers[ledger_id]
        metadata = ledger.metadata
        _check(metadata is not None and metadata.closed, "states", ledger_id, "not closed in the end")
        assert metadata is not None
        self._check_end(ledger_id, ledger)
        if ledger.length_guessed:
            return
        length = sum(map(len, ledger.payloads[: metadata.last_entry_id + 1]))
        _check(metadata.length == length, "length", ledger_id, f"{metadata.length}, its payloads have {length}")


def _repaired(ledger_id: int, before: LedgerMetadata, after: LedgerMetadata) -> LedgerMetadata:
    """What was there before, with the bookies that repairs may have changed since: not those of an open last part."""
    settled = before.ensembles if before.closed else before.ensembles[:-1]
    firsts = [e.first_entry_id for e in settled]
    now = after.ensembles[: len(settled)]
    _check([e.first_entry_id for e in now] == firsts, "repairs", ledger_id, f"{before.ensembles} to {after.ensembles}")
    alone = all(len(set(e.bookies)) == len(e.bookies) for e in after.ensembles)
    _check(alone, "repairs", ledger_id, f"a bookie twice in {after.ensembles}")
    return replace(before, ensembles=(*now, *before.ensembles[len(settled) :]), creation_token=after.creation_token)


def _check(holds: bool, rule: str, ledger_id: int, what: str) -> None:
    if not holds:
        raise Violation(f"{rule}: ledger {ledger_id}: {what}")
