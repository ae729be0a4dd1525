"""Periodic work of a broker on its topics: policies, expired messages, quotas, unused topics.

    every UPKEEP_S                      rules and settings of every open topic are updated from policies
    backlogQuotaCheckInterval…          over its quota: producers wait or fail, or the oldest entries are acknowledged
    messageExpiryCheckInterval…         messages older than the time to live are acknowledged for all subscriptions
    subscriptionExpiryCheckInterval…    subscriptions that were not used for long are deleted
    brokerDeduplicationSnapshot…        the producers' sequence ids are stored, also of topics with little traffic
    brokerDeleteInactiveTopics…         unused topics are deleted

Retention and rollover are the managed ledger's own. Source: BrokerService.java (checkMessageExpiry,
monitorBacklogQuota, checkGC, checkInactiveSubscriptions), BacklogQuotaManager.java, PersistentTopic.java.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from bkinspect.topic_policies import system_topic

from bkctl.codec.pulsar_entry import publish_time
from bkctl.errors import BkctlError, NotFound
from bkctl.log.backlog import bytes_behind
from bkdaemon.broker.cluster.policies import BacklogQuota
from bkdaemon.broker.cluster.policy_writer import write_policies
from bkdaemon.broker.topic.oldest import oldest_of
from bkdaemon.broker.topic.rates import subscriptions_of
from bkdaemon.broker.topic.topic import DEDUPLICATION_CURSOR, Topic

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.cluster.broker import Broker
    from bkdaemon.broker.topic.nonpersistent import NonPersistentTopic
    from bkdaemon.broker.topic.subscription import Subscription

EVICTION: Final = "consumer_backlog_eviction"
EVICTION_TARGET: Final = 0.9
"""An eviction leaves this share of the quota, so that the next one is not needed at once."""
CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"
SYSTEM_PREFIX: Final = "__"

_log = logging.getLogger(__name__)


class Upkeep:
    """The housekeeping of one broker.

    Attributes:
        evictions: the number of evictions from backlogs, by size and by age.
    """

    def __init__(self, broker: Broker) -> None:
        self.evictions = {"size": 0, "time": 0}
        self._broker = broker
        self._last: dict[str, int] = {}
        self._snapshots: WeakKeyDictionary[Topic, int] = WeakKeyDictionary()
        self._added: WeakKeyDictionary[Topic, tuple[int, int]] = WeakKeyDictionary()

    def period_s(self, most_s: float) -> float:
        """Returns the seconds between two rounds: most_s, or less if an interval of the configuration is shorter."""
        config = self._broker.config
        shortest = min(config.backlog_quota_check_s, config.delete_inactive_every_s)
        return min(most_s, shortest, config.deduplication_check_s or most_s)

    async def run(self) -> None:
        """Runs one round over all open topics; work that fails for one topic is retried in the next round."""
        config, now = self._broker.config, self._broker.world.clock.now_ms()
        quotas = config.backlog_quota_check and self._due("quotas", config.backlog_quota_check_s, now)
        expiry = self._due("expiry", config.expiry_check_minutes * 60, now)
        unused = self._due("unused", config.delete_inactive_every_s, now)
        every_s = config.expire_subscriptions_every_minutes * 60
        subscriptions = every_s > 0 and self._due("subscriptions", every_s, now)
        inactive_ms = config.deduplication_inactive_minutes * 60_000
        producers = self._due("producers", inactive_ms // 3000, now)
        every_s = config.deduplication_check_s
        snapshots = every_s > 0 and self._due("snapshots", every_s, now)
        for name, topic in list(self._broker.server.topics.open.items()):
            if topic.closed:
                continue
            try:
                if isinstance(topic, Topic):
                    await self._policies(name, topic)
                    if quotas:
                        await self._check_quota(name, topic, now)
                    if expiry:
                        await self._expire(name, topic)
                    if subscriptions:
                        await self._expire_subscriptions(name, topic, now)
                    if snapshots:
                        await self._snapshot(name, topic, now)
                    if producers and topic.deduplication is not None:
                        topic.deduplication.forget_inactive(topic.producers.by_name, now - inactive_ms, now)
                    await self._roll_inactive(topic, now)
                else:
                    await self._rates(name, topic)
                if unused:
                    await self._delete_unused(name, topic, now)
            except BkctlError as e:
                _log.warning("%s: %s", name, e.message)

    async def _roll_inactive(self, topic: Topic, now: int) -> None:
        """Closes the ledger of an inactive topic, so that its entries can be trimmed."""
        after_s = self._broker.config.inactive_rollover_s
        if after_s <= 0:
            return
        added, since = self._added.get(topic, (-1, now))
        if added != topic.ledger.added:
            self._added[topic] = topic.ledger.added, now
        elif now > since + after_s * 1000:
            await topic.ledger.roll()

    def check_quotas_now(self) -> None:
        """Check backlog quotas in the next round."""
        self._last["quotas"] = 0

    def _due(self, what: str, period_s: float, now: int) -> bool:
        if now - self._last.get(what, self._broker.started_ms) < period_s * 1000:
            return False
        self._last[what] = now
        return True

    async def _snapshot(self, name: TopicName, topic: Topic, now: int) -> None:
        """Stores a snapshot of the producers' sequence ids if the interval of the topic's policies has passed."""
        last = self._snapshots.get(topic, self._broker.started_ms)
        if topic.deduplication is None:
            return
        every_s = await self._broker.backend.policies.snapshot_s(name)
        if 0 < every_s * 1000 <= now - last:
            self._snapshots[topic] = now
            topic.snapshot()

    # -- policies -----------------------------------------------------------------------------------------------------

    async def refresh(self, namespace: str) -> None:
        """Applies the changed policies of a namespace to its open topics at once."""
        for name, topic in list(self._broker.server.topics.open.items()):
            if name.namespace_name == namespace and not topic.closed:
                await (self._policies(name, topic) if isinstance(topic, Topic) else self._rates(name, topic))

    async def _rates(self, name: TopicName, topic: NonPersistentTopic) -> None:
        """Applies the rules and rate limits to a non-persistent topic."""
        topic.rules = await self._broker.backend.policies.rules(name)
        topic.apply_rates(self._broker.server.topics.limits)

    async def _policies(self, name: TopicName, topic: Topic) -> None:
        """Applies the current rules and settings. Deduplication changes only when the topic is opened again."""
        policies = self._broker.backend.policies
        topic.ledger.settings = await policies.ledger_settings(name)
        rules = await policies.rules(name)
        if rules.deduplication and topic.deduplication is None:
            _log.info("reloading %s: deduplication was enabled", name)
            await self._broker.server.topics.unload(name)
            return
        topic.rules = replace(rules, backlog_exceeded=topic.rules.backlog_exceeded)
        topic.apply_rates(self._broker.server.topics.limits, self._broker.rates.of("in", name))
        if rules.compacts:
            await topic.compaction.prepare()
        if not rules.deduplication and DEDUPLICATION_CURSOR in topic.ledger.cursors:
            if topic.deduplication is not None:
                await self._broker.server.topics.unload(name)
            else:
                await topic.ledger.delete_cursor(DEDUPLICATION_CURSOR)

    # -- backlog quotas -----------------------------------------------------------------------------------------------

    async def _check_quota(self, name: TopicName, topic: Topic, now: int) -> None:
        """Enforces the backlog quotas of a topic; producers are accepted again once it is within them."""
        quota = await self._broker.backend.policies.backlog_quota(name)
        exceeded = None
        for policy, over, evict in (
            (quota.policy, self._over_size, self._evict_size),
            (quota.age_policy, self._over_age, self._evict_age),
        ):
            if not await over(topic, quota, now):
                continue
            if policy == EVICTION:
                await evict(topic, quota)
            else:
                exceeded = exceeded or policy
        if exceeded != topic.rules.backlog_exceeded:
            _log.info("%s: backlog quota: %s", name, exceeded or "kept again")
            topic.rules = replace(topic.rules, backlog_exceeded=exceeded)

    async def _over_size(self, topic: Topic, quota: BacklogQuota, now: int) -> bool:
        if quota.size < 0:
            return False
        return any(self._bytes_behind(topic, one) > quota.size for one in _durable(topic))

    async def _over_age(self, topic: Topic, quota: BacklogQuota, now: int) -> bool:
        if quota.age_s <= 0:
            return False
        if not self._broker.config.backlog_quota_reads:
            oldest = oldest_of(topic)
            if oldest is None or now - oldest.since_ms <= quota.age_s * 1000:
                return False
            if oldest.cursor == DEDUPLICATION_CURSOR:  # no client's: it can be moved up
                topic.snapshot()
            return oldest.cursor != DEDUPLICATION_CURSOR
        slowest = min(_durable(topic), key=lambda one: one.cursor.mark_delete, default=None)
        return slowest is not None and await self._age_s(topic, slowest, now) > quota.age_s

    async def _age_s(self, topic: Topic, subscription: Subscription, now: int) -> float:
        """Returns the age of the first entry after a cursor's mark-delete position; 0 without a backlog."""
        log = topic.ledger
        first = log.next_position(subscription.cursor.mark_delete)
        found = await log.lost.look(first, log.next_position(log.last_confirmed))
        return (now - publish_time(found[1])) / 1000 if found is not None else 0.0

    def _bytes_behind(self, topic: Topic, subscription: Subscription) -> int:
        return bytes_behind(topic.ledger.ledgers, subscription.cursor.mark_delete)

    async def _evict_size(self, topic: Topic, quota: BacklogQuota) -> None:
        """Acknowledges the oldest entries of each backlog that exceeds the quota, down to EVICTION_TARGET of it."""
        ledgers, target = topic.ledger.ledgers, int(quota.size * EVICTION_TARGET)
        for subscription in _durable(topic):
            if self._bytes_behind(topic, subscription) <= quota.size:
                continue
            first = ledgers.index(ledgers.next(subscription.cursor.mark_delete))
            low, high = first, ledgers.entries_total
            while low < high:  # the first entry from which on the rest is small enough
                middle = (low + high) // 2
                if bytes_behind(ledgers, ledgers.previous(ledgers.at(middle))) <= target:
                    high = middle
                else:
                    low = middle + 1
            self._evict(topic, subscription, low, "size")

    async def _evict_age(self, topic: Topic, quota: BacklogQuota) -> None:
        """Acknowledges entries that are too old: by the close time of ledgers, or by publish time."""
        now, ledgers = self._broker.world.clock.now_ms(), topic.ledger.ledgers
        if self._broker.config.backlog_quota_reads:
            border = now - int(quota.age_s * EVICTION_TARGET) * 1000
            index = ledgers.index(await topic.ledger.find_by_publish_time(border))
        else:
            border = now - quota.age_s * 1000
            closed = takewhile(lambda one: one != ledgers.open_id, ledgers.ids)
            old = takewhile(lambda one: 0 < (ledgers.infos[one].timestamp_ms or 0) < border, closed)
            index = sum(map(ledgers.entries, old))
        for subscription in _durable(topic):
            self._evict(topic, subscription, index, "time")

    def _evict(self, topic: Topic, subscription: Subscription, index: int, why: str) -> None:
        """Acknowledges all entries before the entry with this index."""
        ledgers, before = topic.ledger.ledgers, subscription.cursor.backlog()
        subscription.acknowledge_until(min(ledgers.previous(ledgers.at(index)), ledgers.last))
        lost = before - subscription.cursor.backlog()
        if lost:
            self.evictions[why] += 1
            _log.info("%s: %s lost %d entries to the backlog quota", topic.name, subscription.name, lost)

    # -- what is too old ----------------------------------------------------------------------------------------------

    async def _expire(self, name: TopicName, topic: Topic) -> None:
        """Acknowledge messages older than the time to live, for all subscriptions."""
        ttl_s = await self._broker.backend.policies.ttl_s(name)
        if ttl_s <= 0:
            return
        for subscription in list(topic.subscriptions.values()):
            if subscription.name in self._broker.config.system_cursors:
                continue
            await self.expire(topic, subscription, ttl_s)

    async def expire(self, topic: Topic, subscription: Subscription, older_than_s: int) -> int:
        """Acknowledges the entries of a backlog that are older than so many seconds; returns their number."""
        now, log = self._broker.world.clock.now_ms(), topic.ledger
        if not subscription.cursor.backlog():
            return 0
        border = await log.find_by_publish_time(now - older_than_s * 1000)
        before, mark_delete = subscription.cursor.backlog(), subscription.cursor.mark_delete
        subscription.acknowledge_until(min(log.ledgers.previous(border), log.last_confirmed))
        gone = before - subscription.cursor.backlog()
        if subscription.cursor.mark_delete != mark_delete:
            subscription.mark_moved_ms = now
        subscription.expired += gone
        subscription.expired_ms = now
        return gone

    async def _expire_subscriptions(self, name: TopicName, topic: Topic, now: int) -> None:
        """Deletes subscriptions that have had no consumer for too long."""
        minutes = await self._broker.backend.policies.subscription_expiry_minutes(name)
        if minutes <= 0 or name.local.startswith(SYSTEM_PREFIX):
            return
        for subscription in _durable(topic):
            idle_ms = now - subscription.cursor.last_active_ms
            if not subscription.consumers and idle_ms > minutes * 60_000:
                await topic.delete_subscription(subscription)
                _log.info(
                    "deleted inactive subscription: topic=%s subscription=%s idle_minutes=%d",
                    name,
                    subscription.name,
                    idle_ms // 60_000,
                )

    # -- unused topics ------------------------------------------------------------------------------------------------

    async def _delete_unused(self, name: TopicName, topic: Topic | NonPersistentTopic, now: int) -> None:
        """Deletes an unused topic, if policies say so."""
        rule = await self._broker.backend.policies.inactivity(name)
        if topic.producers.by_name or any(one.consumers for one in subscriptions_of(topic)):
            topic.used_ms = now
            return
        if not rule.delete or name.local.startswith(SYSTEM_PREFIX) or now - topic.used_ms < rule.after_s * 1000:
            return
        kept = bool(topic.subscriptions)
        if rule.mode == CAUGHT_UP and isinstance(topic, Topic):
            kept = any(one.cursor.backlog() for one in _durable(topic))
        if kept:
            return
        if isinstance(topic, Topic):
            await self.delete(name)
            if name.partition >= 0 and self._broker.config.delete_inactive_metadata:
                await self._forget_partitioned(name.partitioned)
        else:
            await self._broker.server.topics.unload(name)
        _log.info("deleted inactive topic: topic=%s idle_seconds=%d", name, (now - topic.used_ms) // 1000)

    async def _forget_partitioned(self, name: TopicName) -> None:
        """Deletes a partitioned topic and its schemas once no partition exists, as in Java."""
        backend = self._broker.backend
        topics = backend.meta.topics
        count = await topics.partitions(name)
        left = [number for number in range(count) if await topics.exists(name.partition_name(number))]
        if not count or left:
            return
        await topics.delete_partitioned(name)
        await backend.schema_storage.delete(name)

    async def delete(self, name: TopicName) -> None:
        """Closes a topic and deletes it: cursors, ledgers, node.

        Raises:
            NotFound: the topic does not exist.
        """
        backend = self._broker.backend
        async with self._broker.server.topics.kept_closed(name):
            if not await backend.meta.topics.exists(name):
                raise NotFound(f"Topic {name} not found", topic=str(name))
            known = [
                everywhere
                for everywhere in (False, True)
                if name.partition < 0 and await backend.policies.of_topic(name, everywhere=everywhere) is not None
            ]
            log = await backend.open_ledger(name, create=False)
            await log.delete()
        for everywhere in known:
            await self._forget_policies(name, everywhere=everywhere)

    async def _forget_policies(self, name: TopicName, *, everywhere: bool) -> None:
        """Deletes the policies of a deleted topic, so that a new topic of that name does not get them."""
        backend, events = self._broker.backend, system_topic(name.namespace_name)
        try:
            await backend.lookup(events, authoritative=False)
            await backend.check_owned(events)
            await write_policies(self._broker, name, None, everywhere=everywhere)
        except BkctlError as e:
            _log.warning("failed to delete the policies of %s: %s; keeping them", name, e.message)


def _durable(topic: Topic) -> list[Subscription]:
    return [subscription for subscription in topic.subscriptions.values() if subscription.durable]
