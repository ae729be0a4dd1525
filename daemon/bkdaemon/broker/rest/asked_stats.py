"""Statistics that a request selects by an option, and the state of reads in progress.

Source: GetStatsOptions.java, PersistentSubscription.java (getStatsAsync), ManagedLedgerImpl.java
(getEarliestMessagePublishTimeInBacklog, getManagedLedgerInternalStats), PersistentTopic.java (getInternalStats).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from bkctl.codec.pulsar_entry import publish_time
from bkdaemon.broker.dispatch.base import SingleActive
from bkdaemon.broker.rest.base import flag
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import Position
    from bkdaemon.broker.dispatch.base import Dispatcher
    from bkdaemon.broker.topic.topics import AnyTopic

BACKLOGGED: Final = 1000
"""As managedLedgerCursorBackloggedThreshold: a cursor with a larger backlog is not shown as active."""
REPLAYING: Final = "_read:"
"""The place in a dispatcher's work where it waits for entries that are sent again."""


async def as_asked(told: dict[str, Any], topic: AnyTopic, request: Request) -> dict[str, Any]:
    """Returns a topic's statistics with the requested options, and without the excluded parts."""
    if flag(request, "excludePublishers"):
        told["publishers"] = []
    for one in told["subscriptions"].values():
        if flag(request, "excludeConsumers"):
            one["consumers"] = []
        if isinstance(topic, Topic) and not flag(request, "subscriptionBacklogSize", default=True):
            one["backlogSize"] = -1
    if isinstance(topic, Topic) and flag(request, "getEarliestTimeInBacklog"):
        for name, one in told["subscriptions"].items():
            mark_delete = topic.subscriptions[name].cursor.mark_delete
            one["earliestMsgPublishTimeInBacklog"] = await _time_behind(topic.ledger, mark_delete, one["msgBacklog"])
        slowest = min((one.mark_delete for one in topic.ledger.cursors.values() if one.durable), default=None)
        if told["backlogSize"] and slowest is not None:
            told["earliestMsgPublishTimeInBacklogs"] = await _time_behind(topic.ledger, slowest, 1)
    return told


async def _time_behind(log: ManagedLedger, mark_delete: Position, backlog: int) -> int:
    """Return when the first entry after a position was published, in ms; -1 if none is after it."""
    if not backlog:
        return -1
    found = await log.lost.look(log.next_position(mark_delete), log.next_position(log.last_confirmed))
    return -1 if found is None else publish_time(found[1])


def with_reads(told: dict[str, Any], topic: Topic) -> dict[str, Any]:
    """Returns the internal statistics with the pending and waiting reads of each subscription's cursor."""
    for name, subscription in topic.subscriptions.items():
        one, dispatcher = told["cursors"].get(name), subscription.dispatcher
        if one is None or dispatcher is None:
            continue
        reading = not dispatcher.asleep
        replaying = reading and REPLAYING in dispatcher.waits_for
        waiting = not reading and _waits(dispatcher)
        one["active"] = bool(subscription.consumers) and subscription.cursor.backlog() < BACKLOGGED
        one["waitingReadOp"], one["pendingReadOps"] = waiting, int(reading)
        one["subscriptionHavePendingRead"] = waiting or (reading and not replaying)
        one["subscriptionHavePendingReplayRead"] = replaying
    told["waitingCursorsCount"] = sum(one["waitingReadOp"] for one in told["cursors"].values())
    return told


def _waits(dispatcher: Dispatcher) -> bool:
    """True if a consumer has permits and no entry is available."""
    log, cursor = dispatcher.subscription.ledger, dispatcher.subscription.cursor
    takers = [dispatcher.active] if isinstance(dispatcher, SingleActive) else dispatcher.consumers
    ready = not dispatcher.full and any(one is not None and one.ready for one in takers)
    return ready and not log.ledgers.contains(log.ledgers.at_or_after(cursor.read_position))
