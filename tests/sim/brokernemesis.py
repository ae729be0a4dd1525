"""Who makes trouble for brokers, their clients and the bookies below them; nemesis.py has what bookies suffer alone."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import TopicName
from tests.sim.brokerclients import TOPIC
from tests.sim.cluster import ledger_of
from tests.sim.metadata import HOST
from tests.sim.nemesis import Nemesis

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

    from tests.sim.broker import BrokerScenario

NAME: Final = TopicName.parse(TOPIC)
RESTART_S: Final = 3.0
OF_BOOKIES: Final = (
    "kill bookie",
    "power cut",
    "cut in work",
    "stop bookie",
    "cut connection",
    "one way",
    "slow link",
    "lost metadata",
    "metadata cut off",
    "slow disk",
    "spikes",
    "lose bookie",
    "full disk",
)
OF_BROKERS: Final[dict[str, float]] = {
    "kill broker": 0.7,
    "stop broker": 0.5,
    "expire broker": 0.4,
    "cut off broker": 0.4,
    "move topic": 0.8,
    "unload topic": 0.5,
    "kill consumer": 0.6,
    "kill producer": 0.3,
    "conflicts": 0.4,
    "lose cursor ledger": 0.15,
}


class BrokerNemesis(Nemesis):
    """Strikes at bookies, brokers and clients."""

    def __init__(self, scenario: BrokerScenario, random: Random, losses_max: int) -> None:
        super().__init__(scenario.cluster, scenario.shape.kinds, random, losses_max)
        self.scenario = scenario

    def _broker(self) -> str:
        """Rather the owner than another."""
        owner = self.scenario.log.owner
        hosts = self.scenario.hosts
        return owner if owner in hosts and self.random.random() < 0.7 else self.random.choice(hosts)

    def _kill_broker(self) -> None:
        host = self._broker()
        if self.random.random() < 0.2:
            self.cluster.machine(host).power_off()
        else:
            self.cluster.machine(host).kill()
        self._later(RESTART_S, lambda: self.scenario.start_broker(host))
        self._move_topic()

    def _stop_broker(self) -> None:
        """Longer than its session lasts, or not."""
        machine = self.cluster.machine(self._broker())
        machine.stop()
        self._later(16.0, machine.go_on)
        self._move_topic()

    def _expire_broker(self) -> None:
        host = self._broker()
        for session in self.cluster.metadata.sessions:
            if session.host == host and session.process.alive:
                session.expire()

    def _cut_off_broker(self) -> None:
        self.cluster.fabric.part(self._broker(), HOST)
        self._later(14.0, self.cluster.fabric.heal)
        self._move_topic()

    def _move_topic(self) -> None:
        """Clients that connect from now on go to another broker; the others stay with the old one until it is told."""
        scenario = self.scenario
        scenario.home = self.random.choice(scenario.hosts)
        for client in scenario.clients.values():
            if client.link is not None and self.random.random() < 0.5:
                client.link.cut()

    def _unload_topic(self) -> None:
        """The owner closes the topic in peace."""
        for host in self.scenario.hosts:
            service, machine = self.scenario.services.get(host), self.cluster.machine(host)
            if service is not None and machine.running and not machine.process.stopped:  # type: ignore[union-attr]
                process = machine.process
                assert process is not None
                process.call(service.server.spawn, _unload(service))

    def _kill_consumer(self) -> None:
        self._kill_client_of("c")

    def _kill_producer(self) -> None:
        self._kill_client_of("p")

    def _kill_client_of(self, kind: str) -> None:
        hosts = [host for host in self.scenario.makers if host.startswith(kind)]
        host = self.random.choice(hosts)
        self.cluster.machine(host).kill()
        self._later(RESTART_S, lambda: self.scenario.start_client(host))

    def _conflicts(self) -> None:
        self.cluster.metadata.conflict_chance = self.random.choice((0.02, 0.2))
        self._later(4.0, lambda: setattr(self.cluster.metadata, "conflict_chance", 0.0))

    def _lose_cursor_ledger(self) -> None:
        """Somebody deletes a cursor's ledger: acknowledgements since its beginning may be forgotten, messages not."""
        found = self.scenario.cursor_ledgers()
        if not found:
            return
        group = self.random.choice(sorted(found))
        self.scenario.log.groups[group].forgetful = True
        tree = self.cluster.metadata.tree
        for path in [p for p in tree.nodes if ledger_of(p) == found[group]]:
            self.cluster.loop.create_task(MemoryStore(tree).delete_any(path))


async def _unload(service: BrokerService) -> None:
    await service.server.topics.unload(NAME)
