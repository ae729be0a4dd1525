"""The rules of the replication protocol, named as in the TLA+ specification of BookKeeper by J. Vanlightly.

NoDivergenceBetweenClientAndMetaData   a closed ledger ends at or behind everything the writer was told is
                                       acknowledged, before or after the close
AllAckedEntriesAreReadable             each acknowledged entry is on a bookie that the metadata names for it
AllCommittedEntriesReachAckQuorum      each entry of a closed ledger is on Qa of the bookies named for it
NoOutOfOrderEntries                    entry n holds the writer's n-th payload, wherever it is
AtMostOneClose                         metadata of a closed ledger never changes (checked where it would)
NobodyIsStuck                          whoever waits has something under way (checked in system.py)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.model.ledger import LedgerMetadata
from tests.model.explore import Broken

if TYPE_CHECKING:
    from tests.model.system import World


def payload(entry_id: int) -> bytes:
    """What the writer's application appends as its n-th entry."""
    return b"payload " + bytes([ord("A") + entry_id]) * (entry_id + 1)


def check(world: World, clients: tuple[int, ...], bookies: tuple[int, ...], metadata: LedgerMetadata) -> None:
    """Raises Broken if a state breaks a rule."""
    acknowledged = world.writers[clients[0]].last_confirmed
    closed = metadata.closed
    if closed and acknowledged > metadata.last_entry_id:
        raise Broken(
            "NoDivergenceBetweenClientAndMetaData",
            f"entry {acknowledged} is acknowledged, and the ledger is closed at {metadata.last_entry_id}",
        )
    for number in bookies:
        for entry_id, found in world.bookies.payloads(number).items():
            if found != payload(entry_id):
                raise Broken("NoOutOfOrderEntries", f"a bookie holds {found!r} as entry {entry_id}")
    last = metadata.last_entry_id if closed else acknowledged
    for entry_id in range(last + 1):
        named = metadata.ensemble_of(entry_id).bookies
        copies = sum(world.bookies.holds(bookies[world.names.index(b)], entry_id) for b in named)
        where = f"entry {entry_id} is on {copies} of {', '.join(named)}"
        if entry_id <= acknowledged and not copies:
            raise Broken("AllAckedEntriesAreReadable", f"{where}, and was acknowledged")
        if closed and copies < metadata.ack_quorum_size:
            raise Broken("AllCommittedEntriesReachAckQuorum", f"{where}, and the ledger is closed behind it")
