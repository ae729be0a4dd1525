"""The parts of one broker: its stores, its topics and their server, its statistics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bkctl.model.bundle import Bundle, inside
from bkdaemon.broker.cluster.meter import Meter
from bkdaemon.broker.cluster.own_backend import OwnBackend
from bkdaemon.broker.cluster.ownership import BrokerAddress
from bkdaemon.broker.protocol.server import BrokerServer
from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.topic.rates import Rates

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.store import MetadataStore
    from bkctl.world import World
    from bkdaemon.broker.config import BrokerConfig


class Broker:
    """The parts of one broker.

    Attributes:
        broker_id: host:port of its web address, as brokers are listed.
        config: the configuration in effect; own_config: that of broker.conf, without dynamic changes.
        topic_policies: held while those of a topic are changed.
    """

    def __init__(self, config: BrokerConfig, world: World, store: MetadataStore, bookkeeper: BookKeeper) -> None:
        self.config = self.own_config = config
        self.world = world
        self.store = store
        self.bookkeeper = bookkeeper
        self.started_ms = world.clock.now_ms()
        address = BrokerAddress(f"{config.host}:0", "", "")
        self.backend = OwnBackend(config, store, bookkeeper, address, world)
        self.server = BrokerServer(
            self.backend,
            world,
            expose_broker_metadata=config.expose_entry_metadata,
            limits=ServerLimits.of(config),
        )
        self.server.topics.limits.apply(config)
        self.rates = Rates(self.started_ms)
        self.meter = Meter()
        self.topic_policies = asyncio.Lock()

    @property
    def broker_id(self) -> str:
        """host:port of its web address."""
        return self.backend.ownership.address.broker_id

    async def close_bundle(self, bundle: Bundle) -> None:
        """Closes the topics of a bundle; their clients repeat the lookup."""
        await self.server.topics.unload_all(lambda n: n.namespace_name == bundle.namespace and inside(n, bundle))
