"""Where an entry lives: write sets, and when an answer covers every quorum.

Entry e of an ensemble of E bookies is on the Qw indexes (e + i) mod E, i = 0 … Qw − 1.
Source: RoundRobinDistributionSchedule.java; "Understanding distributed log recovery" (quorum coverage).
"""

from __future__ import annotations

from collections.abc import Collection


def write_set(entry_id: int, ensemble_size: int, write_quorum_size: int) -> tuple[int, ...]:
    """The ensemble indexes that hold entry_id, in the order a reader asks them."""
    return tuple((entry_id + i) % ensemble_size for i in range(write_quorum_size))


def holds(entry_id: int, index: int, ensemble_size: int, write_quorum_size: int) -> bool:
    """True if the bookie at this ensemble index is in the write set of entry_id."""
    return (index - entry_id) % ensemble_size < write_quorum_size


def striped_ends(
    first_entry_id: int, last_entry_id: int, index: int, ensemble_size: int, write_quorum_size: int
) -> tuple[int, int] | None:
    """The first and the last of these entries that the bookie at this ensemble index stores; None for nothing."""
    before = (index - first_entry_id) % ensemble_size - write_quorum_size + 1
    behind = (index - last_entry_id) % ensemble_size
    first = first_entry_id + max(before, 0)
    last = last_entry_id - (ensemble_size - behind if behind >= write_quorum_size else 0)
    return (first, last) if first_entry_id <= last and first <= last_entry_id else None


def covered(answered: Collection[int], ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> bool:
    """True once every ack quorum of every write set has an index in `answered`.

    That is: in each of the E windows of Qw consecutive indexes fewer than Qa have not answered.
    """
    for start in range(ensemble_size):
        missing = sum((start + i) % ensemble_size not in answered for i in range(write_quorum_size))
        if missing >= ack_quorum_size:
            return False
    return True
