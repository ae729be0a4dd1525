"""What auto recovery promises, looked at from outside: on the disks of the bookies and in the metadata store itself.

no healthy writer   auto recovery fences a ledger only if, within the grace, something was wrong with its writer, its
is fenced           bookies, the worker or the way between them, or an entry that was confirmed before lacked a copy
copies first        a bookie that metadata names for a settled part has, in that moment, every entry it is to store
repaired            in peace: each entry of a closed ledger is on every bookie of its write set, all of which run
tidy                in peace: no marker, no lock
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from tests.sim.bookies import BOOKIE_PORT
from tests.sim.cluster import ROOT, Cluster
from tests.sim.history import Violation
from tests.sim.loop import OUTSIDE
from tests.sim.metadata import HOST
from tests.sim.scenario import Scenario

SAMPLE_S: Final = 0.25
QUEUE: Final = f"{ROOT}/underreplication/ledgers/"
LOCKS: Final = f"{ROOT}/underreplication/locks/"


class Health:
    """When each machine was last seen in trouble, by looking every SAMPLE_S."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last_bad: dict[str, float] = {}
        self._owners: dict[str, int] = {}
        self._sample()

    def bad_since(self, time_s: float, host: str) -> bool:
        """True if it was in trouble at any time since then."""
        return self.last_bad.get(host, -1.0) >= time_s - SAMPLE_S

    def _sample(self) -> None:
        cluster, now = self.cluster, self.cluster.loop.now
        fabric, metadata = cluster.fabric, cluster.metadata
        everybody = bool(fabric.spike_chance or metadata.lose_chance)
        touched = fabric.troubled()
        for host in (*cluster.machines, HOST):
            if everybody or host in touched or (host != HOST and self._bad(host)):
                self.last_bad[host] = now
        cluster.loop.call_later(SAMPLE_S, self._sample, context=OUTSIDE)

    def _bad(self, host: str) -> bool:
        cluster, machine = self.cluster, self.cluster.machines[host]
        if machine.process is None or not machine.process.alive or machine.process.stopped:
            return True
        if not host.startswith("b"):
            return False
        node = cluster.metadata.tree.nodes.get(f"{ROOT}/available/{bookie_id(host)}")
        owner, before = node.owner if node else 0, self._owners.get(host, 0)
        self._owners[host] = owner
        disk = machine.disk
        slow = machine.sync_factor != cluster.sync_factor or disk.error_chance > 0 or disk.capacity < 1 << 40
        return slow or owner == 0 or owner != before


class Promises:
    """Looks on from the beginning; `unfinished` is asked in peace."""

    def __init__(self, scenario: Scenario, grace_s: float) -> None:
        self.scenario = scenario
        self.cluster = scenario.cluster
        self.grace_s = grace_s
        self.health = Health(self.cluster)
        self.fenced = self.moved = 0
        self._confirmed: dict[int, list[tuple[float, int]]] = {}
        self.cluster.on_ledger = self._ledger_changed

    def confirmed(self, ledger_id: int, entry_id: int) -> None:
        """A writer heard of it now."""
        self._confirmed.setdefault(ledger_id, []).append((self.cluster.loop.now, entry_id))

    def _ledger_changed(self, ledger_id: int, before: LedgerMetadata | None, now: LedgerMetadata) -> None:
        if before is None or before == now:
            return
        actor = self.cluster.metadata.actor
        if actor.startswith("a") and before.state is LedgerState.OPEN and now.state is not LedgerState.OPEN:
            self.fenced += 1
            self._check_fence(ledger_id, now, actor)
        if actor[0] in "ao":
            self._check_copied(ledger_id, before, now)

    def _check_fence(self, ledger_id: int, metadata: LedgerMetadata, actor: str) -> None:
        writer = self.scenario.writing.get(ledger_id)
        if writer is None:
            return
        since = self.cluster.loop.now - self.grace_s
        hosts = [host_of(b) for b in metadata.last_ensemble.bookies]
        if any(self.health.bad_since(since, host) for host in (*hosts, writer, actor, HOST)):
            return
        old = max((e for t, e in self._confirmed.get(ledger_id, ()) if t < since), default=-1)
        first = metadata.last_ensemble.first_entry_id
        for entry_id in range(first, old + 1):
            for host in write_set_hosts(metadata, entry_id):
                if not self.runs(host) or self.cluster.copies(host, ledger_id, entry_id) is None:
                    return  # the writer knew, and has not helped itself
        raise Violation(f"healthy writer: {actor} has fenced ledger {ledger_id}, on {hosts}, of {writer}")

    def _check_copied(self, ledger_id: int, before: LedgerMetadata, now: LedgerMetadata) -> None:
        """Whoever is new in a settled part has its entries."""
        ends = [int(e.first_entry_id) for e in now.ensembles[1:]]
        ends.append(int(now.last_entry_id) + 1 if now.closed and before.closed else -1)
        old = {e.first_entry_id: e.bookies for e in before.ensembles}
        for ensemble, end in zip(now.ensembles, ends, strict=True):
            known = old.get(ensemble.first_entry_id)
            if known is None or end < 0 or known == ensemble.bookies:
                continue
            self.moved += 1
            for entry_id in range(ensemble.first_entry_id, end):
                for index in write_set(entry_id, now.ensemble_size, now.write_quorum_size):
                    bookie, host = ensemble.bookies[index], host_of(ensemble.bookies[index])
                    if bookie != known[index] and self.runs(host):
                        self._check_copy(host, ledger_id, entry_id)

    def _check_copy(self, host: str, ledger_id: int, entry_id: int) -> None:
        if self.cluster.copies(host, ledger_id, entry_id) is None:
            raise Violation(f"copies first: ledger {ledger_id}: {host} is named for entry {entry_id} and lacks it")

    def runs(self, host: str) -> bool:
        """True if its disk can be looked at."""
        return host in self.cluster.services and self.cluster.machines[host].running

    # -- in peace -------------------------------------------------------------------------------------------------

    def unfinished(self, *, entries: bool = True) -> str:
        """What is still to be done, in words; empty where every promise is kept. entries=False: bookies only."""
        nodes = self.cluster.metadata.tree.nodes
        for path in nodes:
            if path.startswith(QUEUE) and "/urL" in path:
                return f"tidy: {path} is still there"
            if path.startswith(LOCKS):
                return f"tidy: {path} is still there"
        return next(self._lacking(entries=entries), "")

    def _lacking(self, *, entries: bool) -> Iterator[str]:
        history = self.scenario.history
        for ledger_id, ledger in sorted(history.ledgers.items()):
            metadata = ledger.metadata
            if metadata is None or ledger.deleted or history.excused(ledger_id):
                continue
            for ensemble in metadata.ensembles:
                for bookie in ensemble.bookies:
                    if not self.runs(host_of(bookie)):
                        yield f"repaired: ledger {ledger_id} names {bookie} at entry {ensemble.first_entry_id}"
            if not metadata.closed or not entries:
                continue
            for entry_id in range(metadata.last_entry_id + 1):
                for host in write_set_hosts(metadata, entry_id):
                    copy = self.cluster.copies(host, ledger_id, entry_id) if self.runs(host) else None
                    if copy is None:
                        yield f"repaired: ledger {ledger_id}: entry {entry_id} is not on {host}"
                    elif not copy.endswith(ledger.payloads[entry_id]):
                        yield f"payload: ledger {ledger_id}: entry {entry_id} on {host} is another"


def bookie_id(host: str) -> str:
    """The id of the bookie on a machine."""
    return f"{host}:{BOOKIE_PORT}"


def host_of(bookie: str) -> str:
    """The machine of a bookie."""
    return bookie.partition(":")[0]


def write_set_hosts(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """The machines that are to store an entry."""
    bookies = metadata.ensemble_of(entry_id).bookies
    chosen = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
    return [host_of(bookies[index]) for index in chosen]
