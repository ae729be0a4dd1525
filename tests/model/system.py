"""The modelled world: real writer, real recoverers, real bookies, one metadata node, and everything that can happen.

    state    (clients, bookies, metadata, version, faults, net)
             clients: core states of the writer (0) and the recoverers (1, 2); bookies: their states; metadata: a
             number; faults: how many requests each client may still give up; net: the messages under way, sorted

Two recoverers are interchangeable: of a state and its mirror image only one is kept. What cannot have an effect any
more is taken away at once, so that states which differ in nothing else become one.

With `reduced`, a step that commutes with everything that others may do before it, and that no rule can see, is taken
first and alone (a persistent set of invisible steps; they cannot go on for ever, each uses up a message):

    * everything that a recoverer can hear, when all it waits for is on its way back to it;
    * a bookie's answer that nothing can change: a fenced bookie refuses the writer, or is read for the only recoverer;
    * a compare-and-set that is too late (not with `coarse`, where its answer arrives in the same step).
Giving up such a request before and after the bookie's step comes to the same.

With `coarse`, an answer reaches its client in the step in which it is given, or never: no late answers, but late
requests. That is fewer states for larger sizes, and not every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bkctl.codec.checksum import Crc32cDigest, Digest
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata, LedgerState
from bkctl.protocol.actions import Action, ChooseReplacement, ReadMetadata, SendAdd, SendRead, WriteMetadata
from bkctl.protocol.quorum import TIMED_OUT
from bkctl.protocol.recovery import RecoveryCore, RecoveryPhase
from bkctl.protocol.writer import WriterCore, metadata_state
from tests.model.bookie import BookieTable
from tests.model.cores import Event, Table
from tests.model.explore import Broken, Label, State
from tests.model.messages import (
    ADRIFT,
    ANSWER,
    CHOICE,
    CONFLICT,
    FOUND,
    LOOKUP,
    OPEN,
    REQUEST,
    WRITE,
    WRITE_ADRIFT,
    WRITTEN,
    Messages,
    Request,
)
from tests.model.rules import check, payload
from tests.model.words import words

LEDGER_ID: Final = 7
WRITER: Final = 0


@dataclass(frozen=True)
class Size:
    """How large the world is. The faults: how many requests the writer, and each recoverer, may give up."""

    bookies: int = 4
    recoverers: int = 2
    entries: int = 1
    writer_faults: int = 1
    recoverer_faults: int = 1
    ensemble_size: int = 3
    write_quorum_size: int = 3
    ack_quorum_size: int = 2
    writer_closes: bool = True
    reduced: bool = True
    coarse: bool = False
    recovery_class: type[RecoveryCore] = field(default=RecoveryCore, repr=False)


class World:
    """Real cores and real bookies, and the steps between their states."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.digest: Digest = Crc32cDigest()
        self.names = tuple(BookieId(f"b{i + 1}") for i in range(size.bookies))
        self.metadata: list[LedgerMetadata] = []
        self._metadata_numbers: dict[tuple[object, ...], int] = {}
        self.messages = Messages(size.recoverers)
        self.bookies = BookieTable(LEDGER_ID)
        self.writers: Table[WriterCore] = Table(self._call_writer)
        self.recoveries: Table[RecoveryCore] = Table(self._call_recovery)
        self._sends: dict[tuple[int, int, Event], tuple[int, tuple[int, ...]]] = {}
        self._carried: dict[tuple[int, int], tuple[int, int, bytes | None]] = {}
        self._relevance: dict[tuple[int, int], int] = {}
        self._checked: set[tuple[Any, ...]] = set()

    # -- explore.System -------------------------------------------------------------------------------------------

    def initial(self) -> State:
        """An open ledger without entries, a writer, nobody who recovers."""
        size = self.size
        ensemble = Ensemble(EntryId(0), self.names[: size.ensemble_size])
        metadata = LedgerMetadata(size.ensemble_size, size.write_quorum_size, size.ack_quorum_size, (ensemble,))
        writer = self.writers.number(WriterCore(LEDGER_ID, metadata, 0, self.digest))
        clients = (writer, *(0 for _ in range(size.recoverers)))
        faults = (size.writer_faults, *(size.recoverer_faults for _ in range(size.recoverers)))
        return (clients, (0,) * size.bookies, self._metadata_number(metadata), 0, faults, ())

    def steps(self, state: State) -> Iterator[tuple[Label, State]]:
        """The application, the network, the bookies, the store: whatever may be next."""
        if self.size.reduced:
            alone = self._alone(state)
            if alone is not None:
                yield from alone
                return
        yield from self._application_steps(state)
        yield from self._message_steps(state, state[5])

    def check(self, state: State) -> None:
        """The rules of a state; see rules.py."""
        clients, bookies, metadata, _, _, net = state
        key = (clients, bookies, metadata)
        if key not in self._checked:
            check(self, clients, bookies, self.metadata[metadata])
            self._checked.add(key)
        self._check_progress(clients, net)

    def words(self, state: State, label: Label) -> str:
        """A step in words."""
        return words(self, state, label)

    # -- the application ------------------------------------------------------------------------------------------

    def _application_steps(self, state: State) -> Iterator[tuple[Label, State]]:
        clients, _, metadata, version, _, _ = state
        writer = self.writers[clients[WRITER]]
        if writer.takes_entries:
            entry_id = writer.last_pushed + 1
            if entry_id < self.size.entries:
                yield ("append", entry_id), self._event(state, WRITER, ("append", entry_id))
            if self.size.writer_closes:
                yield ("close",), self._event(state, WRITER, ("close",))
        for client in range(1, len(clients)):
            if client > 1 and clients[client] == clients[client - 1] == 0:
                break  # the other one would be its mirror image
            if clients[client] == 0 or self.recoveries[clients[client]].phase is RecoveryPhase.FAILED:
                core = self.size.recovery_class(LEDGER_ID, self.metadata[metadata], version, self.digest)
                fresh = (*clients[:client], self.recoveries.number(core), *clients[client + 1 :])
                yield ("recover", client), self._event((fresh, *state[1:]), client, ("start",))

    def _message_steps(self, state: State, numbers: Sequence[int]) -> Iterator[tuple[Label, State]]:
        before = 0
        all_messages, faults = self.messages.all, state[4]
        for number in numbers:
            if number == before:  # twice the same: one step stands for both
                continue
            before = number
            kind, client, _ = all_messages[number]
            if kind == REQUEST:
                yield self._carry_out(state, number)
                if faults[client]:
                    yield self._give_up(state, number)
            elif kind == ANSWER:
                yield self._deliver(state, number)
                if faults[client]:
                    yield self._give_up(state, number)
            elif kind == ADRIFT:
                yield self._carry_out(state, number)
            else:
                yield from self._metadata_steps(state, number, kind)

    def _alone(self, state: State) -> Iterator[tuple[Label, State]] | None:
        """Steps that may be taken before all others, and for all others; None where there are none."""
        _, _, _, version, _, net = state
        hearing: dict[int, list[int]] = {}
        waiting = set()
        for number in net:
            kind, client, body = self.messages.all[number]
            if kind == REQUEST:
                if self._is_settled(state, body) and not (self.size.coarse and self._hears_more(client, net)):
                    return iter((self._carry_out(state, number),))
                waiting.add(client)
            elif kind == WRITE and body[1] != version and not self.size.coarse:
                return iter((self._compare_and_set(state, number),))
            elif kind in (WRITE, LOOKUP):
                waiting.add(client)
            elif kind in OPEN and client != WRITER:
                hearing.setdefault(client, []).append(number)
        for client, numbers in hearing.items():
            if client not in waiting:
                return self._message_steps(state, numbers)
        return None

    def _is_settled(self, state: State, request: Request) -> bool:
        """True if the request changes nothing at the bookie, and nothing that may come before it changes its answer."""
        clients, bookies, _, _, _, net = state
        at = bookies[request.bookie]
        if not (self.bookies.states[at].fenced and self.bookies.is_idle(at, request)):
            return False
        if request.body is not None:
            return True  # a fenced bookie takes no entries from the writer
        if any(not core or not self.recoveries[core].settled for core in clients[2:]) or len(clients) > 2:
            return False  # somebody else may write back what is read here
        return not any(
            m.body.body is not None and m.body.bookie == request.bookie
            for m in (self.messages.all[number] for number in net)
            if m.kind in (REQUEST, ADRIFT)
        )

    def _hears_more(self, client: int, net: tuple[int, ...]) -> bool:
        """True if the client waits for more than one answer, or may act without one: their order counts."""
        mine = sum(m.client == client and m.kind in OPEN for m in (self.messages.all[n] for n in net))
        return client == WRITER or mine > 1

    # -- bookies --------------------------------------------------------------------------------------------------

    def _carry_out(self, state: State, number: int) -> tuple[Label, State]:
        clients, bookies, metadata, version, faults, net = state
        kind, client, request = self.messages.all[number]
        at = request.bookie
        found = self._carried.get((bookies[at], number))
        if found is None:
            found = self._carried[bookies[at], number] = self.bookies.step(bookies[at], request)
        after, status, body = found
        label = ("carry", number)
        if kind == REQUEST and self.size.coarse:
            bookies = (*bookies[:at], after, *bookies[at + 1 :])
            event = self._answer_event(client, request, status, body)
            return label, self._event((clients, bookies, metadata, version, faults, net), client, event, number)
        net = _without(net, number)
        if kind == REQUEST:
            net = _with(net, (self.messages.number(ANSWER, client, (request, status, body)),))
        if after != bookies[at]:
            bookies = (*bookies[:at], after, *bookies[at + 1 :])
        return label, self._canonical(clients, bookies, metadata, version, faults, net)

    def _deliver(self, state: State, number: int) -> tuple[Label, State]:
        _, client, (request, status, body) = self.messages.all[number]
        event = self._answer_event(client, request, status, body)
        return ("deliver", number), self._event(state, client, event, number)

    def _give_up(self, state: State, number: int) -> tuple[Label, State]:
        kind, client, body = self.messages.all[number]
        request = body if kind == REQUEST else body[0]
        adrift = (self.messages.number(ADRIFT, 0, request),) if kind == REQUEST else ()
        event = self._answer_event(client, request, TIMED_OUT, None)
        return ("give-up", number), self._event(state, client, event, number, adrift, fault=True)

    def _answer_event(self, client: int, request: Request, status: int, body: bytes | None) -> Event:
        if request.body is not None:
            return ("add", request.index, self.names[request.bookie], request.entry_id, status)
        if request.entry_id < 0:
            return ("fenced", request.index, status, body)
        return ("read", request.index, request.entry_id, status, body)

    # -- the metadata store ---------------------------------------------------------------------------------------

    def _metadata_steps(self, state: State, number: int, kind: int) -> Iterator[tuple[Label, State]]:
        _, client, body = self.messages.all[number]
        clients, bookies, metadata, version, faults, net = state
        if kind in (WRITE, WRITE_ADRIFT):
            yield self._compare_and_set(state, number)
        elif kind == WRITTEN:
            yield ("told", number), self._event(state, client, ("written", *body), number)
        elif kind == CONFLICT:
            lookup = self.messages.number(LOOKUP, client, None)
            net = _with(_without(net, number), (lookup,))
            yield ("told", number), self._canonical(clients, bookies, metadata, version, faults, net)
        elif kind == LOOKUP and self.size.coarse:
            yield ("look", number), self._event(state, client, ("found", metadata, version), number)
        elif kind == LOOKUP:
            found = self.messages.number(FOUND, client, (metadata, version))
            net = _with(_without(net, number), (found,))
            yield ("look", number), self._canonical(clients, bookies, metadata, version, faults, net)
        elif kind == FOUND:
            yield ("told", number), self._event(state, client, ("found", *body), number)
        else:
            for chosen in self._choices(*body):
                yield ("choose", number, chosen), self._event(state, client, ("replaced", chosen), number)
        if kind in (WRITE, WRITTEN, CONFLICT) and faults[client]:
            adrift = (self.messages.number(WRITE_ADRIFT, 0, body),) if kind == WRITE else ()
            yield ("lose", number), self._event(state, client, ("lost",), number, adrift, fault=True)

    def _compare_and_set(self, state: State, number: int) -> tuple[Label, State]:
        kind, client, (wanted, expected) = self.messages.all[number]
        clients, bookies, metadata, version, faults, net = state
        label = ("set", number)
        if expected == version:
            if self.metadata[metadata].state is LedgerState.CLOSED:
                raise Broken("AtMostOneClose", "metadata of a closed ledger is written again", label)
            metadata, version = wanted, version + 1
            event: Event = ("written", metadata, version)
            answer = self.messages.number(WRITTEN, client, (metadata, version))
        else:
            event = ("found", metadata, version)
            answer = self.messages.number(CONFLICT, client, None)
        if kind == WRITE and self.size.coarse:
            return label, self._event((clients, bookies, metadata, version, faults, net), client, event, number)
        net = _without(net, number)
        if kind == WRITE:
            net = _with(net, (answer,))
        return label, self._canonical(clients, bookies, metadata, version, faults, net)

    def _choices(self, failed: tuple[tuple[int, int], ...], ensemble: tuple[int, ...]) -> Iterator[Event]:
        """Every way to replace as many of the failed as there are bookies for."""
        gone = {b for _, b in failed}
        spare = [b for b in range(self.size.bookies) if b not in ensemble and b not in gone]
        if not spare:
            yield ()
        elif len(failed) == 1:
            yield from (((failed[0][0], b),) for b in spare)
        elif len(spare) == 1:
            yield from (((i, spare[0]),) for i, _ in failed)
        else:
            (first, _), (second, _) = failed[:2]
            yield from (((first, a), (second, b)) for a in spare for b in spare if a != b)

    # -- clients --------------------------------------------------------------------------------------------------

    def _event(
        self,
        state: State,
        client: int,
        event: Event,
        number: int = 0,
        more: tuple[int, ...] = (),
        *,
        fault: bool = False,
    ) -> State:
        """Brings an event to a client, takes message `number` away, puts `more` and what the client sends under way."""
        clients, bookies, metadata, version, left, net = state
        key = (client, clients[client], event)
        found = self._sends.get(key)
        if found is None:
            found = self._sends[key] = self._step_client(*key)
        after, sent = found
        if number:
            net = _without(net, number)
        if sent or more:
            net = _with(net, sent + more)
        clients = (*clients[:client], after, *clients[client + 1 :])
        if fault:
            left = (*left[:client], left[client] - 1, *left[client + 1 :])
        return self._canonical(clients, bookies, metadata, version, left, net)

    def _step_client(self, client: int, core: int, event: Event) -> tuple[int, tuple[int, ...]]:
        table: Table[Any] = self.writers if client == WRITER else self.recoveries
        after, actions = table.step(core, event)
        return after, tuple(number for action in actions for number in self._sent(client, action))

    def _sent(self, client: int, action: Action) -> list[int]:
        """The messages that carry out an action."""
        number, at = self.messages.number, self.names.index
        match action:
            case SendAdd(index, bookie, ids, entries, flags):
                requests = [Request(index, at(bookie), e, b, flags) for e, b in zip(ids, entries, strict=True)]
                return [number(REQUEST, client, request) for request in requests]
            case SendRead(index, bookie, entry_id, flags):
                return [number(REQUEST, client, Request(index, at(bookie), entry_id, None, flags))]
            case WriteMetadata(metadata, version):
                return [number(WRITE, client, (self._metadata_number(metadata), version))]
            case ReadMetadata():
                return [number(LOOKUP, client, None)]
            case ChooseReplacement(failed, ensemble):
                gone = tuple((i, at(b)) for i, b in failed)
                return [number(CHOICE, client, (gone, tuple(map(at, ensemble))))]
            case _:
                return []

    def _call_writer(self, core: WriterCore, event: Event) -> Sequence[Action]:
        match event:
            case ("append", entry_id):
                return core.append_many([payload(entry_id)])
            case ("close",):
                return core.close()
            case ("add", index, bookie, entry_id, status):
                return core.answered(index, bookie, entry_id, status)
            case _:
                return self._call_either(core, event)

    def _call_recovery(self, core: RecoveryCore, event: Event) -> Sequence[Action]:
        match event:
            case ("start",):
                return core.start()
            case ("add", index, bookie, entry_id, status):
                return core.add_answered(index, bookie, entry_id, status)
            case ("fenced", index, status, body):
                return core.fencing_answered(index, status, body)
            case ("read", index, entry_id, status, body):
                return core.read_answered(index, entry_id, status, body)
            case _:
                return self._call_either(core, event)

    def _call_either(self, core: WriterCore | RecoveryCore, event: Event) -> Sequence[Action]:
        match event:
            case ("replaced", chosen):
                return core.replaced({i: self.names[b] for i, b in chosen})
            case ("written", metadata, version):
                return core.metadata_written(self.metadata[metadata], version)
            case ("found", metadata, version):
                return core.metadata_found(self.metadata[metadata], version)
            case ("lost",):
                return core.metadata_lost()
        raise AssertionError(event)

    def _metadata_number(self, metadata: LedgerMetadata) -> int:
        key = metadata_state(metadata)
        found = self._metadata_numbers.get(key)
        if found is None:
            found = self._metadata_numbers[key] = len(self.metadata)
            self.metadata.append(metadata)
        return found

    # -- one state for all that are alike -------------------------------------------------------------------------

    def _canonical(
        self,
        clients: tuple[int, ...],
        bookies: tuple[int, ...],
        metadata: int,
        version: int,
        faults: tuple[int, ...],
        net: tuple[int, ...],
    ) -> State:
        kept, messages, relevant = [], self.messages.all, self._relevance
        for number in net:
            kind, client, body = messages[number]
            if kind == ADRIFT:
                key = (number, bookies[body.bookie])
            elif kind == WRITE_ADRIFT:
                if body[1] == version:  # versions only grow: else it never fits again
                    kept.append(number)
                continue
            else:
                key = (number, clients[client])
            found = relevant.get(key)
            if found is None:
                found = relevant[key] = self._relevant(number, key[1])
            if found != number and found:  # adrift from now on: is it worth keeping?
                found = 0 if messages[found].kind == ADRIFT and self._is_idle(found, bookies) else found
            if found:
                kept.append(found)
        kept.sort()
        net = tuple(kept)
        if len(clients) == 3 and clients[1] >= clients[2]:
            mirror = (
                (clients[0], clients[2], clients[1]),
                (faults[0], faults[2], faults[1]),
                self.messages.swapped(net),
            )
            if mirror < (clients, faults, net):
                clients, faults, net = mirror
        return (clients, bookies, metadata, version, faults, net)

    def _relevant(self, number: int, at: int) -> int:
        """The message itself, or what is left of it when its sender does not listen any more; 0 for nothing.

        at: the state of the bookie for what is adrift, of the client for all else.
        """
        kind, client, body = self.messages.all[number]
        if kind == ADRIFT:
            return 0 if self.bookies.is_idle(at, body) else number
        if not self._deaf(at, client, kind, body):
            return number
        if kind == REQUEST:
            return self.messages.number(ADRIFT, 0, body)
        return self.messages.number(WRITE_ADRIFT, 0, body) if kind == WRITE else 0

    def _is_idle(self, number: int, bookies: tuple[int, ...]) -> bool:
        request = self.messages.all[number].body
        return self.bookies.is_idle(bookies[request.bookie], request)

    def _deaf(self, core: int, client: int, kind: int, body: Any) -> bool:
        """True if nothing the client hears about this message makes a difference to it."""
        if client == WRITER:
            return self.writers[core].settled
        recovery = self.recoveries[core]
        if recovery.settled:
            return True
        if kind not in (REQUEST, ANSWER):
            return False
        request = body if kind == REQUEST else body[0]
        if request.body is not None:
            return False
        if request.entry_id < 0:
            return recovery.phase is not RecoveryPhase.FENCING
        return recovery.phase not in (RecoveryPhase.READING, RecoveryPhase.MEASURING)

    def _check_progress(self, clients: tuple[int, ...], net: tuple[int, ...]) -> None:
        """Whoever waits for something has something under way."""
        waited_for = {self.messages.all[m].client for m in net if self.messages.all[m].kind in OPEN}
        for client, core in enumerate(clients):
            if client in waited_for or not core:
                continue
            if client == WRITER:
                writer = self.writers[core]
                if not writer.settled and not (writer.takes_entries and writer.last_pushed == writer.last_confirmed):
                    raise Broken("NobodyIsStuck", f"the writer waits for ever: {writer.phase.value}")
            elif not self.recoveries[core].settled:
                raise Broken("NobodyIsStuck", f"a recovery waits for ever: {self.recoveries[core].phase.value}")


def _without(net: tuple[int, ...], number: int) -> tuple[int, ...]:
    at = net.index(number)
    return net[:at] + net[at + 1 :]


def _with(net: tuple[int, ...], numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(net + numbers))
