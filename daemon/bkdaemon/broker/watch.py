"""Finds what stands still: a subscription that is sent nothing though it could be, a log whose adds are not confirmed.

    asleep    the dispatcher waits to be woken, with a ready consumer and an available entry: a bug; it is woken
    reading   it is at one read, or fails at many: bookies are slow or gone; their own time-outs go on
    adding    adds wait, and none of them is stored

What a dispatch rate holds back stands not still. A look costs a few comparisons a subscription; what two looks that
are STALL_S apart found at the same place is counted, and told once, with all that decides about it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from bkdaemon.broker.topic.sent import sent
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.base import Dispatcher
    from bkdaemon.broker.topic.subscription import Subscription
    from bkdaemon.broker.topic.topics import AnyTopic

STALL_S: Final = 10.0
"""Longer than any one answer of a bookie is waited for."""
KINDS: Final = ("asleep", "reading", "adding")
CONSUMERS_TOLD_MAX: Final = 10

logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where something was found, since when, and whether that was logged."""

    at: Hashable
    since_s: float
    told: bool


class Watch:
    """Looks at all topics of a broker from time to time.

    Attributes:
        stalls: how many were found so far, by kind.
        still: how many topics and subscriptions stand still now.
    """

    def __init__(self) -> None:
        self.stalls = dict.fromkeys(KINDS, 0)
        self.still = 0
        self._places: dict[Hashable, _Place] = {}

    def look(self, topics: Iterable[AnyTopic], now_s: float) -> None:
        """One look; now_s of a clock that never goes back."""
        before, self._places = self._places, {}
        for topic in topics:
            if not isinstance(topic, Topic) or topic.closed:
                continue
            log = topic.ledger
            if log.waiting and self._stands((topic,), log.added, before, now_s):
                self._tell("adding", _state_of_log(topic))
            for subscription in topic.subscriptions.values():
                self._look_at(subscription, before, now_s)
        self.still = sum(place.told for place in self._places.values())

    def _look_at(self, subscription: Subscription, before: dict[Hashable, _Place], now_s: float) -> None:
        dispatcher = subscription.dispatcher
        if dispatcher is None or not dispatcher.could_send:
            return
        if any(bucket.wait_s > 0 for bucket in subscription.dispatch_limits):
            return
        asleep = dispatcher.asleep
        place = (asleep, subscription.cursor.read_position, sent(subscription).messages)
        if self._stands((subscription, dispatcher), place, before, now_s):
            self._tell("asleep" if asleep else "reading", _state(subscription, dispatcher))
            if asleep:
                dispatcher.wake()

    def _stands(self, what: Hashable, at: Hashable, before: dict[Hashable, _Place], now_s: float) -> bool:
        """True once for each time that something is found standing still."""
        known = before.get(what)
        if known is None or known.at != at:
            known = _Place(at, now_s, told=False)
        news = not known.told and now_s - known.since_s >= STALL_S
        self._places[what] = known._replace(told=known.told or news)
        return news

    def _tell(self, kind: str, state: str) -> None:
        self.stalls[kind] += 1
        logger.warning("stands still (%s) for %g s or more: %s", kind, STALL_S, state)


def _state_of_log(topic: Topic) -> str:
    """All that decides whether adds are stored."""
    log = topic.ledger
    return (
        f"{topic.name}: {log.waiting} adds wait, the log is {log.state.value}, ledger {log.ledgers.open_id}, "
        f"stored up to {tuple(log.last_confirmed)}, full {log.congested}, error {log.error}"
    )


def _state(subscription: Subscription, dispatcher: Dispatcher) -> str:
    """All that decides whether a subscription is sent anything."""
    cursor, log = subscription.cursor, subscription.ledger
    consumers = [
        f"{c.name}: permits {c.permits}, unacked {c.unacked}, blocked {c.blocked}, "
        f"takes what is sent {c.connection.writable}"
        for c in subscription.consumers[:CONSUMERS_TOLD_MAX]
    ]
    delayed, again = dispatcher.waiting
    return (
        f"{subscription} {type(dispatcher).__name__}: reads at {tuple(cursor.read_position)}, "
        f"acknowledged up to {tuple(cursor.mark_delete)}, stored up to {tuple(log.last_confirmed)}, "
        f"backlog {cursor.backlog()}, {delayed} delayed, {again} to be sent again, "
        f"work: {dispatcher.waits_for or 'none'}; {len(subscription.consumers)} consumers: {'; '.join(consumers)}"
    )
