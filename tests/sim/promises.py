"""What auto recovery promises, looked at from outside: on the disks of the bookies and in the metadata store itself.

no healthy writer   auto recovery fences a ledger only if, within the grace, something was wrong with its writer, its
is fenced           bookies, the worker or the way between them, or an entry that was confirmed before lacked a copy
copies first        a bookie that metadata names for a settled part has, in that moment, every entry it is to store
locked              auto recovery changes a ledger only while no other session has its lock, fences it only after having
                    had the lock for the grace, and never changes an open part's bookies
marked              a marker goes only when none of the bookies in it that are lost for ever, and known to be, is named
                    by the ledger; while the dead one's session lasts a part without entries lacks nothing
switched off        nothing is marked and nothing is locked while auto recovery is off
repaired            in peace: each entry of a closed ledger is on every bookie of its write set, all of which run
tidy                in peace: no marker, no lock
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from bkctl.codec.underreplication import decode_marker, marker_name, parse_marker_name
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from tests.sim.bookies import BOOKIE_PORT
from tests.sim.cluster import ROOT, Cluster
from tests.sim.history import Violation
from tests.sim.loop import OUTSIDE
from tests.sim.metadata import HOST
from tests.sim.scenario import Scenario

SAMPLE_S: Final = 0.25
UNDER_WAY_S: Final = 8.0
"""What was asked of the store before the switch, or the end of a session, may still arrive for so long."""
DISABLE: Final = f"{ROOT}/underreplication/disable"
QUEUE: Final = f"{ROOT}/underreplication/ledgers/"
LOCKS: Final = f"{ROOT}/underreplication/locks/"
AVAILABLE: Final = f"{ROOT}/available/"


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
        self._locked_s: dict[str, float] = {}
        self._marked: dict[str, tuple[str, ...]] = {}
        self._left_s: dict[str, float] = {}  # when a bookie's registration went
        self._off_s: float | None = None
        self.cluster.on_ledger = self._ledger_changed
        self.cluster.on_node = self._node_changed

    def confirmed(self, ledger_id: int, entry_id: int) -> None:
        """A writer heard of it now."""
        self._confirmed.setdefault(ledger_id, []).append((self.cluster.loop.now, entry_id))

    def _ledger_changed(self, ledger_id: int, before: LedgerMetadata | None, now: LedgerMetadata) -> None:
        if before is None or before == now:
            return
        actor = self.cluster.metadata.actor
        if actor.startswith("a"):
            self._check_locked(ledger_id, before, now, actor)
        if actor.startswith("a") and before.state is LedgerState.OPEN and now.state is not LedgerState.OPEN:
            self.fenced += 1
            self._check_fence(ledger_id, now, actor)
        if actor[0] in "ao":
            self._check_copied(ledger_id, before, now)

    # -- the queue ------------------------------------------------------------------------------------------------

    def _node_changed(self, path: str) -> None:
        now, node = self.cluster.loop.now, self.cluster.metadata.tree.nodes.get(path)
        if path.startswith(AVAILABLE):
            self._left_s[path.rpartition("/")[2]] = now if node is None else inf
        elif path == DISABLE:
            self._off_s = now if node is not None else None
        elif path.startswith(LOCKS) and node is None:
            self._locked_s.pop(path, None)
        elif path.startswith(LOCKS):
            self._locked_s.setdefault(path, now)  # an attempt to lock it as well is heard of too
            self._check_on(path)
        elif path.startswith(QUEUE) and "/urL" in path:
            if node is None:
                self._check_unmarked(path)
            else:
                self._check_on(path)
                self._marked[path] = decode_marker(node.data, source=path).replicas

    def _check_on(self, path: str) -> None:
        now, actor = self.cluster.loop.now, self.cluster.metadata.actor
        if self._off_s is None or now - self._off_s < UNDER_WAY_S or not actor.startswith("a"):
            return
        if not self.health.bad_since(now - UNDER_WAY_S, actor):
            raise Violation(
                f"switched off: {actor} writes {path} though auto recovery is off since {self._off_s:.1f} s"
            )

    def _check_unmarked(self, path: str) -> None:
        ledger_id = parse_marker_name(path.rpartition("/")[2])
        ledger = self.scenario.history.ledgers.get(ledger_id) if ledger_id is not None else None
        long_ago = self.cluster.loop.now - UNDER_WAY_S
        known = {b for host in self.cluster.gone if self._left_s.get(b := bookie_id(host), inf) <= long_ago}
        lost = known.intersection(self._marked.pop(path, ()))
        if ledger is None or ledger.deleted or ledger.metadata is None:
            return
        left = sorted(lost.intersection(b for e in ledger.metadata.ensembles for b in e.bookies))
        if left:
            raise Violation(f"marked: ledger {ledger_id} is no longer marked and still names {left}")

    def _check_locked(self, ledger_id: int, before: LedgerMetadata, now: LedgerMetadata, actor: str) -> None:
        cluster = self.cluster
        sessions = [s for s in cluster.metadata.sessions if s.host == actor]
        if any(cluster.loop.now - s.expired_s < UNDER_WAY_S for s in sessions):
            return
        path = LOCKS + marker_name(ledger_id)
        node = cluster.metadata.tree.nodes.get(path)
        own = {s.session_id for s in sessions}
        if node is None or (node.owner not in own and self.health.bad_since(cluster.loop.now - 30.0, actor)):
            return  # its session ended while it was frozen or cut off, and it has not heard of it yet
        if node.owner not in own:
            raise Violation(f"locked: {actor} changes ledger {ledger_id} under somebody else's lock")
        fences = before.state is LedgerState.OPEN and now.state is not LedgerState.OPEN
        age = cluster.loop.now - self._locked_s[path]
        if fences and age < self.grace_s - 0.001:
            raise Violation(f"locked: {actor} fences ledger {ledger_id} after {age:.3f} s, not after {self.grace_s} s")
        if before.state is now.state is LedgerState.OPEN and before.last_ensemble != now.last_ensemble:
            raise Violation(f"locked: {actor} changes where the writer of ledger {ledger_id} writes")

    # -- ledgers --------------------------------------------------------------------------------------------------

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
