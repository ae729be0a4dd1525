"""Balancing: a broker splits its large bundles; the leader has overloaded brokers unload bundles.

Bundles that no longer exist are released too, whether or not load is balanced.

A bundle of another broker is unloaded by its REST interface, as Java's leader does, so that both kinds of brokers
understand each other. Source: ModularLoadManagerImpl.java (doLoadShedding, checkNamespaceBundleSplit).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from bkctl.client import http
from bkctl.errors import BkctlError, Unavailable
from bkctl.model.bundle import Bundle, parse_range
from bkdaemon.broker.cluster.balance import Move, Shedding, SplitLimits, goals, too_large
from bkdaemon.broker.cluster.isolation import brokers_for, isolation_policies
from bkdaemon.broker.cluster.load import bundle_stats
from bkdaemon.broker.cluster.splitting import places_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bkdaemon.broker.cluster.broker import Broker

BALANCE_S: Final = 60.0
"""The length of a round; loads are compared every loadBalancerSheddingIntervalMinutes of them."""
UNLOAD_TIMEOUT_S: Final = 60.0
RESPONSE_BYTES_MAX: Final = 64 * 1024

_log = logging.getLogger(__name__)


class Balancer:
    """One broker's.

    Attributes:
        split, unloaded: how many bundles were split and unloaded.
    """

    def __init__(self, broker: Broker) -> None:
        self.split = self.unloaded = 0
        self._broker = broker
        self._shedding = Shedding()
        self._rounds = 0

    @property
    def _limits(self) -> SplitLimits:
        config = self._broker.config
        return SplitLimits(
            config.split_topics,
            config.split_sessions,
            config.split_message_rate,
            config.split_mb * 1024 * 1024.0,
            config.bundles_max,
        )

    async def run(self) -> None:
        """Releases deleted bundles, splits large ones and, as the leader, has overloaded brokers unload some."""
        config, broker = self._broker.config, self._broker
        await broker.backend.ownership.give_up_strays(broker.close_bundle)
        if not config.load_balancer:
            return
        if config.auto_split:
            await self.split_bundles()
        self._rounds += 1
        if self._rounds % config.shedding_minutes:
            return
        if config.shedding and broker.backend.ownership.leading:
            await self.shed(await broker.backend.ownership.reports())

    async def split_bundles(self) -> None:
        """Split bundles of this broker that are too large; clients repeat the lookup of their topics."""
        broker, stats = self._broker, bundle_stats(self._broker)
        ownership = broker.backend.ownership
        counts = {}
        for namespace in {name.rpartition("/")[0] for name in stats}:
            counts[namespace] = len(await ownership.bundles(namespace))
        for name in too_large(stats, counts, self._limits):
            namespace, _, text = name.rpartition("/")
            try:
                bundle = parse_range(namespace, text)
                places = await places_of(broker, bundle)
                if not places:
                    continue
                await ownership.split(bundle, broker.close_bundle, places)
            except BkctlError as e:
                _log.warning("failed to split bundle %s: %s; keeping it", name, e.message)
                continue
            self.split += 1
            _log.info("split bundle %s: %s", name, stats[name])

    async def shed(self, reports: Mapping[str, Mapping[str, Any]]) -> list[Move]:
        """Have overloaded brokers unload bundles that others may take; return the chosen bundles."""
        config = self._broker.config
        self._shedding.threshold = config.shedding_threshold / 100
        self._shedding.grace_s = config.shedding_grace_minutes * 60
        policies = await isolation_policies(self._broker.store, config.cluster)

        def allowed(move: Move) -> set[str]:
            return brokers_for(policies, move.bundle.rpartition("/")[0], reports) - {move.broker}

        moves = self._shedding.decide(
            reports, self._broker.world.clock.now_ms() / 1000, lambda move: bool(allowed(move))
        )
        self._broker.backend.ownership.goals = {
            _bundle(move): goal for move, goal in goals(moves, reports, allowed).items()
        }
        for move in moves:
            try:
                await self._unload(move, str(reports[move.broker].get("webServiceUrl", "")))
            except BkctlError as e:
                _log.warning("failed to unload bundle %s of broker %s: %s", move.bundle, move.broker, e.message)
                continue
            self.unloaded += 1
            goal = self._broker.backend.ownership.goals.get(_bundle(move))
            _log.info("unloaded bundle %s of overloaded broker %s, next owner: %s", move.bundle, move.broker, goal)
        return moves

    async def _unload(self, move: Move, url: str) -> None:
        broker, bundle = self._broker, _bundle(move)
        if move.broker == broker.broker_id:
            await broker.backend.ownership.unload(bundle, broker.close_bundle)
        else:
            await asyncio.to_thread(_put, f"{url}/admin/v2/namespaces/{bundle.namespace}/{bundle.range}/unload")


def _bundle(move: Move) -> Bundle:
    namespace, _, text = move.bundle.rpartition("/")
    return parse_range(namespace, text)


def _put(url: str) -> None:
    response = http.send("PUT", url, timeout_s=UNLOAD_TIMEOUT_S, body_bytes_max=RESPONSE_BYTES_MAX)
    if response.status // 100 != 2:
        raise Unavailable(f"{url}: HTTP {response.status}", url=url)
