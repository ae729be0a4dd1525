"""Steps of the modelled world in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.codec.entry import METADATA
from bkctl.codec.wire import Flag
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.protocol.recovery import status_name
from tests.model.explore import Label, State
from tests.model.messages import ADRIFT, ANSWER, CONFLICT, FOUND, REQUEST, WRITE_ADRIFT, WRITTEN, Request

if TYPE_CHECKING:
    from tests.model.system import World


def words(world: World, state: State, label: Label) -> str:
    """One line."""
    match label:
        case ("append", entry_id):
            return f"the application appends entry {entry_id}"
        case ("close",):
            return "the application closes the writer"
        case ("recover", client):
            return f"{_client(client)} starts"
        case ("choose", number, chosen):
            who = _client(world.messages.all[number].client)
            names = ", ".join(f"{world.names[b]} at {i}" for i, b in chosen)
            return f"{who} is given {names or 'no bookie'} as replacement"
        case (step, number):
            kind, client, body = world.messages.all[number]
            if kind in (REQUEST, ADRIFT, ANSWER):
                return _bookie_step(world, state, step, kind, _client(client), body)
            return _store_step(world, state, step, kind, _client(client), body)
    return str(label)


def _bookie_step(world: World, state: State, step: str, kind: int, who: str, body: Any) -> str:
    request: Request = body[0] if kind == ANSWER else body
    name, what = world.names[request.bookie], _request(request)
    if step == "carry":
        _, status, _ = world.bookies.step(state[1][request.bookie], request)
        late = "late, and nobody waits: " if kind == ADRIFT else ""
        sender = "" if kind == ADRIFT else f" of {who}"
        return f"{late}{name} gets '{what}'{sender}: {status_name(status)}"
    if step == "deliver":
        return f"{who} hears from {name}: '{what}' is {status_name(body[1])}"
    return f"{who} gives up waiting for {name}: '{what}'" + (" (the answer is lost)" if kind == ANSWER else "")


def _store_step(world: World, state: State, step: str, kind: int, who: str, body: Any) -> str:
    if step == "set":
        wanted, expected = body
        done = "done" if expected == state[3] else f"conflict, it is at {state[3]}"
        late = "late, and nobody waits: " if kind == WRITE_ADRIFT else f"{who}: "
        return f"{late}compare-and-set at version {expected} to {_metadata(world.metadata[wanted])}: {done}"
    if step == "look":
        return f"the store is read for {who}: {_metadata(world.metadata[state[2]])}"
    if step == "lose":
        return f"{who} loses the answer of its compare-and-set"
    if kind == WRITTEN:
        return f"{who} hears that its compare-and-set is done"
    if kind == CONFLICT:
        return f"{who} hears of a conflict"
    assert kind == FOUND
    return f"{who} hears what the store holds: {_metadata(world.metadata[body[0]])}"


def _client(number: int) -> str:
    return "the writer" if number == 0 else f"recoverer {number}"


def _request(request: Request) -> str:
    if request.body is not None:
        kind = "recovery add" if request.flags & Flag.RECOVERY_ADD else "add"
        return f"{kind} of entry {request.entry_id} (LAC {METADATA.unpack_from(request.body)[2]})"
    fence = "fencing " if request.flags & Flag.FENCE else ""
    return f"{fence}read of {'the last entry' if request.entry_id < 0 else f'entry {request.entry_id}'}"


def _metadata(metadata: LedgerMetadata) -> str:
    end = f" at {metadata.last_entry_id}" if metadata.state is LedgerState.CLOSED else ""
    ensembles = "; ".join(f"{e.first_entry_id}: {' '.join(e.bookies)}" for e in metadata.ensembles)
    return f"{metadata.state.name}{end} [{ensembles}]"
