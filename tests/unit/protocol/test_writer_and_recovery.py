"""A writer and two recoveries at once, over bookies of a few lines, in any order of events.

Every message may be late, lost (then a time-out is told, before or after it was carried out) or overtaken; every
compare-and-set may lose its answer. Whatever happens, what the writer confirmed is below the end and readable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.wire import Flag
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.actions import (
    Action,
    ChooseReplacement,
    Confirmed,
    ReadMetadata,
    SendAdd,
    SendRead,
    WriteMetadata,
)
from bkctl.protocol.quorum import TIMED_OUT
from bkctl.protocol.recovery import RecoveryCore
from bkctl.protocol.writer import WriterCore
from tests.unit.protocol.helpers import DIGEST, LEDGER, A, B, C, D, E, ledger, opened

ENTRIES = 4
STEPS_MAX = 3_000


@dataclass
class Bookie:
    entries: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False

    def add(self, entry_id: int, entry: bytes, flags: int) -> int:
        if self.fenced and not flags & Flag.RECOVERY_ADD:
            return Status.FENCED
        self.entries[entry_id] = entry
        return Status.OK

    def read(self, entry_id: int, flags: int) -> tuple[int, bytes | None]:
        self.fenced = self.fenced or bool(flags & Flag.FENCE)
        wanted = max(self.entries, default=-1) if entry_id == -1 else entry_id
        body = self.entries.get(wanted)
        return (Status.NO_ENTRY, None) if body is None else (Status.OK, body)


class Cluster:
    """The bookies, the metadata, the clients, and what is under way between them."""

    def __init__(self, data: st.DataObject, metadata: LedgerMetadata) -> None:
        self.data = data
        self.bookies: dict[BookieId, Bookie] = {b: Bookie() for b in (A, B, C, D, E)}
        self.metadata, self.version = metadata, 0
        self.confirmed = -1
        self.under_way: list[tuple[WriterCore | RecoveryCore, Action, bool]] = []

    def post(self, core: WriterCore | RecoveryCore, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Confirmed):
                if isinstance(core, WriterCore):
                    self.confirmed = action.last_confirmed
            elif isinstance(action, SendAdd | SendRead | WriteMetadata | ReadMetadata | ChooseReplacement):
                self.under_way.append((core, action, True))

    def step(self, reliable: bool) -> None:
        at = 0 if reliable else self.data.draw(st.integers(0, len(self.under_way) - 1))
        core, action, told = self.under_way.pop(at)
        fate = 0 if reliable else self.data.draw(st.sampled_from([0, 0, 0, 0, 1, 2]))  # fine, lost, late
        match action:
            case SendAdd():
                self.add(core, action, fate, told)
            case SendRead():
                self.read(core, action, fate, told)
            case WriteMetadata():
                self.write(core, action, fate)
            case ReadMetadata():
                self.post(core, core.metadata_found(self.metadata, self.version))
            case ChooseReplacement():
                spare = [b for b in self.bookies if b not in action.ensemble and b not in {b for _, b in action.failed}]
                self.post(core, core.replaced(dict(zip((i for i, _ in action.failed), spare, strict=False))))

    def add(self, core: WriterCore | RecoveryCore, action: SendAdd, fate: int, told: bool) -> None:
        if fate:
            if told:
                self.post(core, core.refused(action.index, action.bookie, action.entry_ids, TIMED_OUT))
            if fate == 2:
                self.under_way.append((core, action, False))
            return
        for entry_id, entry in zip(action.entry_ids, action.entries, strict=True):
            status = self.bookies[action.bookie].add(entry_id, entry, action.flags)
            if status == Status.OK:
                self.post(core, core.acked(action.index, action.bookie, [entry_id]))
            else:
                self.post(core, core.refused(action.index, action.bookie, [entry_id], status))

    def read(self, core: WriterCore | RecoveryCore, action: SendRead, fate: int, told: bool) -> None:
        assert isinstance(core, RecoveryCore)
        status, body = (TIMED_OUT, None) if fate else self.bookies[action.bookie].read(action.entry_id, action.flags)
        if fate == 2:
            self.under_way.append((core, action, False))
        if action.entry_id == -1:
            self.post(core, core.fencing_answered(action.index, status, body))
        else:
            self.post(core, core.read_answered(action.index, action.entry_id, status, body))

    def write(self, core: WriterCore | RecoveryCore, action: WriteMetadata, fate: int) -> None:
        if fate == 1:
            return self.post(core, core.metadata_lost())
        landed = action.version == self.version
        if landed:
            self.metadata, self.version = action.metadata, self.version + 1
        if fate == 2:
            return self.post(core, core.metadata_lost())
        if landed:
            return self.post(core, core.metadata_written(self.metadata, self.version))
        return self.post(core, core.metadata_found(self.metadata, self.version))

    def check(self) -> None:
        if self.metadata.state is LedgerState.CLOSED:
            assert self.metadata.last_entry_id >= self.confirmed, "a confirmed entry was cut off"
        for entry_id in range(self.confirmed + 1):
            members = self.metadata.ensemble_of(entry_id).bookies
            indexes = write_set(entry_id, self.metadata.ensemble_size, self.metadata.write_quorum_size)
            copies = [self.bookies[members[i]].entries.get(entry_id) for i in indexes]
            assert any(c is not None and opened(c).payload == b"%d" % entry_id for c in copies), f"entry {entry_id}"


@given(st.data(), st.sampled_from([((A, B, C), 3, 2), ((A, B, C), 2, 2), ((A, B, C, D), 3, 2), ((A, B), 2, 1)]))
@settings(max_examples=300, deadline=None)
def test_what_was_confirmed_survives_any_order_of_events(
    data: st.DataObject, size: tuple[tuple[BookieId, ...], int, int]
) -> None:
    metadata = ledger(*size)
    cluster = Cluster(data, metadata)
    writer = WriterCore(LEDGER, metadata, 0, DIGEST)
    recoveries: list[RecoveryCore] = []
    appended = 0
    for _ in range(STEPS_MAX):
        choices = ["deliver"] * 4 if cluster.under_way else []
        if appended < ENTRIES and writer.takes_entries:
            choices.append("append")
        if len(recoveries) < 2:
            choices.append("recover")
        if not choices:
            break
        match data.draw(st.sampled_from(choices)):
            case "append":
                cluster.post(writer, writer.append_many([b"%d" % appended]))
                appended += 1
            case "recover":
                core = RecoveryCore(LEDGER, cluster.metadata, cluster.version, DIGEST, read_ahead=len(recoveries) + 1)
                recoveries.append(core)
                cluster.post(core, core.start())
            case _:
                cluster.step(reliable=False)
        cluster.check()
    last = RecoveryCore(LEDGER, cluster.metadata, cluster.version, DIGEST)
    cluster.post(last, last.start())
    while cluster.under_way:
        cluster.step(reliable=True)
        cluster.check()
    assert cluster.metadata.state is LedgerState.CLOSED
