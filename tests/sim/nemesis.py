"""Who makes trouble: faults of every kind, at random times, and their end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.sim.cluster import Cluster
from tests.sim.metadata import HOST

PAUSE_S: Final = 0.7  # between two strokes, on average

KINDS: Final[dict[str, float]] = {
    "kill bookie": 0.5,
    "power cut": 0.5,
    "cut in work": 0.4,
    "partition": 0.5,
    "one way": 0.3,
    "slow link": 0.4,
    "cut connection": 0.5,
    "stop bookie": 0.3,
    "stop client": 0.3,
    "kill client": 0.3,
    "lost metadata": 0.4,
    "expire session": 0.3,
    "metadata cut off": 0.2,
    "full disk": 0.2,
    "failing disk": 0.2,
    "lose bookie": 0.2,
    "lying disk": 0.08,
    "spikes": 0.4,
    "takeover": 0.4,
    "takeover and reboot": 0.3,
    "skewed takeover": 0.4,
    "slow disk": 0.3,
}
"""Each kind of trouble, and the chance that a run has it at all."""


class Nemesis:
    """Strikes from time to time.

    Args:
        kinds: what it may do.
        losses_max: how many bookies it may take for ever.
    """

    def __init__(self, cluster: Cluster, kinds: tuple[str, ...], random: Random, losses_max: int) -> None:
        self.cluster = cluster
        self.kinds = kinds
        self.random = random
        self.losses_left = losses_max
        self.pause_s = PAUSE_S
        self.peace = False  # what was still to come does not come

    async def rage(self, seconds: float) -> None:
        """Strikes for so long."""
        self.peace = False
        cluster = self.cluster
        until = cluster.loop.now + seconds
        while cluster.loop.now < until:
            await cluster.sleep(self.random.expovariate(1 / self.pause_s))
            if self.kinds:
                kind = self.random.choice(self.kinds)
                cluster.trace.add("nemesis", kind)
                getattr(self, "_" + kind.replace(" ", "_"))()

    async def make_peace(self) -> None:
        """Ends all trouble and brings back everything that can come back."""
        cluster = self.cluster
        cluster.trace.add("peace")
        self.peace = True
        cluster.metadata.lose_chance = cluster.metadata.conflict_chance = 0.0
        cluster.fabric.spike_chance = 0.0
        cluster.fabric.heal()
        for machine in cluster.machines.values():
            machine.go_on()
            machine.disk.error_chance = 0.0
            machine.disk.fail_at = None
            machine.sync_factor = cluster.sync_factor
            machine.disk.capacity = 1 << 40
            machine.disk.lies = False
        for _ in range(60):
            await cluster.sleep(1.0)
            alive = [host for host in cluster.bookie_hosts if host not in cluster.gone]
            for host in alive:
                if self._is_broken(host):  # what operators do with a bookie that had an I/O error: start it again
                    cluster.machines[host].kill()
                cluster.start_bookie(host)
            if all(map(self._serves, alive)):
                return

    def _serves(self, host: str) -> bool:
        service = self.cluster.services.get(host)
        running = self.cluster.machines[host].running
        return running and service is not None and service.registered and not service.bookie.read_only

    def _is_broken(self, host: str) -> bool:
        service = self.cluster.services.get(host)
        return service is not None and any(journal.broken for journal in service.bookie.journals)

    # -- the strokes ----------------------------------------------------------------------------------------------

    def _bookie(self) -> str:
        return self.random.choice(self.cluster.bookie_hosts)

    def _any_two(self) -> tuple[str, str]:
        names = [*self.cluster.machines, HOST]
        one, other = self.random.sample(names, 2)
        return one, other

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        """Does it within so many seconds; often much sooner."""
        share = self.random.choice((0.1, 1.0)) * self.random.random()
        self.cluster.loop.call_later(share * seconds, work)

    def _kill_bookie(self) -> None:
        host = self._bookie()
        self.cluster.machines[host].kill()
        self._later(6.0, lambda: self.cluster.start_bookie(host))

    def _power_cut(self) -> None:
        hosts = self.cluster.bookie_hosts
        for host in self.random.sample(hosts, self.random.choice((1, 1, 2, len(hosts)))):
            self.cluster.machines[host].power_off()
            self._later(6.0, lambda host=host: self.cluster.start_bookie(host))

    def _cut_in_work(self) -> None:
        host = self._bookie()
        self.cluster.machines[host].cut_power_in(self.random.randrange(1, 30))
        self._later(12.0, lambda: self.cluster.start_bookie(host))

    def _partition(self) -> None:
        one, other = self._any_two()
        self.cluster.fabric.part(one, other)
        self._later(15.0, self.cluster.fabric.heal)

    def _one_way(self) -> None:
        self.cluster.fabric.block(*self._any_two())
        self._later(10.0, self.cluster.fabric.heal)

    def _slow_link(self) -> None:
        one, other = self._any_two()
        factor = self.random.choice((10.0, 100.0, 1000.0))
        self.cluster.fabric.slow(one, other, factor)
        self._later(10.0, self.cluster.fabric.heal)

    def _cut_connection(self) -> None:
        connections = [c for c in self.cluster.fabric.connections if not c.over]
        if connections:
            self.random.choice(connections).cut()

    def _stop_bookie(self) -> None:
        machine = self.cluster.machines[self._bookie()]
        machine.stop()
        self._later(12.0, machine.go_on)

    def _stop_client(self) -> None:
        names = [n for n in self.cluster.machines if n[0] in "wr"]
        if names:
            machine = self.cluster.machines[self.random.choice(names)]
            machine.stop()
            self._later(15.0, machine.go_on)

    def _kill_client(self) -> None:
        names = [n for n in self.cluster.machines if n[0] in "wr"]
        if names:
            self.cluster.machines[self.random.choice(names)].kill()

    def _lost_metadata(self) -> None:
        self.cluster.metadata.lose_chance = self.random.choice((0.05, 0.3))
        self._later(10.0, lambda: setattr(self.cluster.metadata, "lose_chance", 0.0))

    def _expire_session(self) -> None:
        live = [s for s in self.cluster.metadata.sessions if s.process.alive]
        if live:
            self.random.choice(live).expire()

    def _metadata_cut_off(self) -> None:
        for name in self.cluster.machines:
            self.cluster.fabric.part(name, HOST)
        self._later(20.0, self.cluster.fabric.heal)

    def _full_disk(self) -> None:
        disk = self.cluster.machines[self._bookie()].disk
        disk.capacity = disk.used() + self.random.choice((0, 20_000, 1 << 20))
        self._later(8.0, lambda: setattr(disk, "capacity", 1 << 40))

    def _failing_disk(self) -> None:
        disk = self.cluster.machines[self._bookie()].disk
        disk.error_chance = self.random.choice((0.01, 0.1, 0.5))
        self._later(4.0, lambda: setattr(disk, "error_chance", 0.0))

    def _lose_bookie(self) -> None:
        if self.losses_left > 0:
            self.losses_left -= 1
            self.cluster.lose_for_ever(self._bookie())

    def _lying_disk(self) -> None:
        host = self._bookie()
        self.cluster.history.liars.add(host)
        self.cluster.machines[host].disk.lie_from_now()

    def _takeover(self) -> None:
        """A writer freezes, its ledger is recovered, its bookies lose power, and then the writer goes on."""
        writers = [n for n in self.cluster.machines if n.startswith("w") and self.cluster.machines[n].running]
        if not writers:
            return
        machine = self.cluster.machines[self.random.choice(writers)]
        machine.stop()
        self.cluster.recover_newest = True
        seconds = self.random.uniform(0.5, 4.0)
        for host in self.cluster.bookie_hosts:
            if self.random.random() < 0.8:
                self.cluster.loop.call_later(seconds * self.random.random(), self._reboot, host)
        self.cluster.loop.call_later(seconds + 1.0, machine.go_on)

    def _victim(self) -> tuple[int, str, list[str]] | None:
        """A ledger that is being written, its writer's machine, and its bookies'."""
        writing = {i: h for i, h in self.cluster.writing.items() if self.cluster.machines[h].running}
        known = [i for i in sorted(writing) if self.cluster.history.ledgers[i].metadata is not None]
        if not known:
            return None
        ledger_id = self.random.choice(known)
        metadata = self.cluster.history.ledgers[ledger_id].metadata
        assert metadata is not None
        return ledger_id, writing[ledger_id], [b.partition(":")[0] for b in metadata.last_ensemble.bookies]

    def _takeover_and_reboot(self) -> None:
        """A writer freezes; as soon as its ledger is closed all its bookies lose power, and then the writer goes on."""
        victim = self._victim()
        if victim is None:
            return
        ledger_id, writer, bookies = victim
        cluster, machine = self.cluster, self.cluster.machines[writer]
        process = machine.process
        if self.random.random() < 0.5:  # so slow that what was not waited for is not there when the power goes
            for host in bookies:
                cluster.machines[host].sync_factor = 1000.0
        machine.stop()
        cluster.recover_newest, cluster.recover_next = True, ledger_id
        pauses_left = 250
        power_chance = self.random.choice((0.5, 1.0))

        def look() -> None:
            nonlocal pauses_left
            metadata = cluster.history.ledgers[ledger_id].metadata
            pauses_left -= 1
            if pauses_left > 0 and not self.peace and metadata is not None and not metadata.closed:
                cluster.loop.call_later(0.02, look)
                return
            for host in bookies:
                self._reboot(host, power_chance)
            cluster.loop.call_later(0.5, go_on)

        def go_on() -> None:
            for host in bookies:
                cluster.machines[host].sync_factor = cluster.sync_factor
            if machine.process is process:
                machine.go_on()

        look()

    def _skewed_takeover(self) -> None:
        """A ledger is recovered while what goes to and fro between clients and bookies takes very different times."""
        victim = self._victim()
        if victim is None:
            return
        ledger_id, writer, bookies = victim
        cluster, random = self.cluster, self.random
        recoverers = [n for n in cluster.machines if n.startswith("r")]
        for one in bookies:
            for source, target in [(writer, one), *((r, one) for r in recoverers), *((one, r) for r in recoverers)]:
                seconds = random.choice((0.0, 0.0, 0.05, 0.5, 1.5))
                if seconds:
                    cluster.fabric.slow(source, target, seconds / cluster.fabric.latency_s)

        def recover() -> None:
            cluster.recover_newest, cluster.recover_next = True, ledger_id

        def cut() -> None:
            if self.peace:
                return
            for host in random.sample(bookies, random.choice((1, 1, 2))):
                for recoverer in recoverers:
                    for connection in cluster.fabric.between(recoverer, host):
                        connection.cut()

        cluster.loop.call_later(random.random() * 0.5, recover)
        cluster.loop.call_later(random.random() * 1.5, cut)
        cluster.loop.call_later(4.0, cluster.fabric.heal)

    def _reboot(self, host: str, power_chance: float = 0.5) -> None:
        if self.peace:
            return
        machine = self.cluster.machines[host]
        if self.random.random() < power_chance:
            machine.power_off()
        else:
            machine.kill()
        self.cluster.loop.call_later(0.05, self.cluster.start_bookie, host)

    def _slow_disk(self) -> None:
        machine = self.cluster.machines[self._bookie()]
        machine.sync_factor = self.random.choice((10.0, 100.0, 1000.0))
        self._later(10.0, lambda: setattr(machine, "sync_factor", self.cluster.sync_factor))

    def _spikes(self) -> None:
        self.cluster.fabric.spike_chance = self.random.choice((0.01, 0.1))
        self._later(10.0, lambda: setattr(self.cluster.fabric, "spike_chance", 0.0))
