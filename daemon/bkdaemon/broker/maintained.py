"""A broker with its periodic work: upkeep of topics, balancing of bundles, a watch for stalled dispatchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkdaemon.broker.cluster.balancer import Balancer
from bkdaemon.broker.cluster.broker import Broker
from bkdaemon.broker.upkeep import Upkeep
from bkdaemon.broker.watch import Watch

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.store import MetadataStore
    from bkctl.world import World
    from bkdaemon.broker.config import BrokerConfig


class MaintainedBroker(Broker):
    """A broker as its REST interface and its metrics see it."""

    def __init__(self, config: BrokerConfig, world: World, store: MetadataStore, bookkeeper: BookKeeper) -> None:
        super().__init__(config, world, store, bookkeeper)
        self.upkeep = Upkeep(self)
        self.watch = Watch()
        self.balancer = Balancer(self)
