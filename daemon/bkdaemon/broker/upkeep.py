"""What a broker does by itself, topic by topic: policies looked at again, expired messages, quotas, unused topics.

Source: BrokerService.java (checkMessageExpiry, monitorBacklogQuota, checkGC).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError, NotFound
from bkdaemon.broker.topic import Topic

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.service import BrokerService

HOLD: Final = "producer_request_hold"
EXCEPTION: Final = "producer_exception"
EVICTION: Final = "consumer_backlog_eviction"

_log = logging.getLogger(__name__)


class Upkeep:
    """The housekeeping of one broker."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._last: dict[str, int] = {}

    async def run(self) -> None:
        """One round over all persistent topics that are open; what fails for one is tried again in the next round."""
        now = self._service.world.clock.now_ms()
        expire = self._due("expiry", self._service.config.expiry_check_minutes * 60, now)
        unused = self._due("unused", self._service.config.delete_inactive_every_s, now)
        for name, topic in list(self._service.server.topics.open.items()):
            if not isinstance(topic, Topic) or topic.closed:
                continue
            try:
                await self._policies(name, topic)
                if expire:
                    await self._expire(name, topic, now)
                if unused:
                    await self._delete_unused(name, topic, now)
            except BkctlError as e:
                _log.warning("%s: %s", name, e.message)

    def _due(self, what: str, period_s: float, now: int) -> bool:
        if now - self._last.get(what, self._service.started_ms) < period_s * 1000:
            return False
        self._last[what] = now
        return True

    async def _policies(self, name: TopicName, topic: Topic) -> None:
        """Rules and settings as they are now, and whether the backlog is over its quota."""
        policies = self._service.backend.policies
        log = topic.ledger
        log.settings = await policies.ledger_settings(name)
        rules = await policies.rules(name)
        quota = await policies.backlog_quota(name)
        exceeded = None
        if quota.size >= 0:
            over = [
                s for s in topic.subscriptions.values() if s.durable and self._backlog_size(topic, s.name) > quota.size
            ]
            if over and quota.policy == EVICTION:
                for subscription in over:
                    await self._evict(topic, subscription.name, quota.size)
            elif over:
                exceeded = quota.policy
        topic.rules = replace(rules, backlog_exceeded=exceeded)

    def _backlog_size(self, topic: Topic, subscription: str) -> int:
        """Bytes behind a cursor: the share of its entries of what is kept."""
        ledgers = topic.ledger.ledgers
        entries = ledgers.between(topic.ledger.cursors[subscription].mark_delete, ledgers.last)
        return ledgers.size_total * entries // max(1, ledgers.entries_total)

    async def _evict(self, topic: Topic, subscription: str, size: int) -> None:
        """Acknowledges the oldest of a backlog until it is within its quota."""
        backlog = self._backlog_size(topic, subscription)
        cursor = topic.ledger.cursors[subscription]
        entries = topic.ledger.ledgers.between(cursor.mark_delete, topic.ledger.last_confirmed)
        surplus = -(-entries * (backlog - size) // max(1, backlog))
        await cursor.skip(surplus)
        _log.info("%s: %s lost %d entries to the backlog quota", topic.name, subscription, surplus)

    async def _expire(self, name: TopicName, topic: Topic, now: int) -> None:
        """Acknowledges for everybody what is older than the namespace's time to live."""
        ttl_s = await self._service.backend.policies.ttl_s(name)
        if ttl_s <= 0:
            return
        log = topic.ledger
        if not log.ledgers.entries_total:
            return
        border = log.ledgers.previous(await log.find_by_publish_time(now - ttl_s * 1000))
        for subscription in list(topic.subscriptions.values()):
            subscription.cursor.ack_cumulative(border)

    async def _delete_unused(self, name: TopicName, topic: Topic, now: int) -> None:
        """Deletes a topic without producers and subscriptions, where configuration says so."""
        config = self._service.config
        if not config.delete_inactive or topic.subscriptions or topic.producers.by_name or name.partition >= 0:
            return
        idle_s = config.delete_inactive_after_s or config.delete_inactive_every_s
        if now - topic.used_ms >= idle_s * 1000:
            await self.delete(name)
            _log.info("%s: deleted, nobody used it for %d s", name, (now - topic.used_ms) // 1000)

    async def delete(self, name: TopicName) -> None:
        """Closes a topic and deletes it: cursors, ledgers, node.

        Raises:
            NotFound: there is no such topic.
        """
        backend = self._service.backend
        await self._service.server.topics.unload(name)
        if not await backend.meta.topics.exists(name):
            raise NotFound(f"Topic {name} not found", topic=str(name))
        log = await backend.open_ledger(name, create=False)
        await log.delete()
