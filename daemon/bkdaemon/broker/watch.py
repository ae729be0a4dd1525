"""Finds stalled subscriptions and ledgers: one with entries for a ready consumer, one whose adds are not confirmed.

    asleep    the dispatcher waits to be woken, with a ready consumer and an available entry: a bug; it is woken, and
              the tests fail that find WOKEN in a broker's log
    reading   the dispatcher is at one read, or its reads fail: bookies are slow or gone; their own time-outs apply
    adding    adds are pending, and none of them is stored

A subscription that a dispatch rate delays is not stalled. A check costs a few comparisons for each subscription. One
that two checks STALL_S apart find at the same place is counted and logged once, with all state that decides about it.
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
"""Longer than the time-out of any request to a bookie."""
KINDS: Final = ("asleep", "reading", "adding")
CONSUMERS_LOGGED_MAX: Final = 10
WOKEN: Final = "woke a stalled dispatcher"
"""How the log message of a lost wake-up begins."""

logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """The place of a subscription or a ledger, since when, and whether the stall was logged."""

    at: Hashable
    since_s: float
    logged: bool


class Watch:
    """Checks all topics of a broker for stalls.

    Attributes:
        stalls: the number found so far, by kind.
        still: the number of topics and subscriptions that are stalled now.
    """

    def __init__(self) -> None:
        self.stalls = dict.fromkeys(KINDS, 0)
        self.still = 0
        self._places: dict[Hashable, _Place] = {}

    def check(self, topics: Iterable[AnyTopic], now_s: float) -> None:
        """Check all topics; now_s is of a monotonic clock."""
        before, self._places = self._places, {}
        for topic in topics:
            if not isinstance(topic, Topic) or topic.closed:
                continue
            log = topic.ledger
            if log.waiting and self._stalled((topic,), log.added, before, now_s):
                self.stalls["adding"] += 1
                logger.warning("adds stalled for %g s or more: %s", STALL_S, _state_of_log(topic))
            for subscription in topic.subscriptions.values():
                self._check(subscription, before, now_s)
        self.still = sum(place.logged for place in self._places.values())

    def _check(self, subscription: Subscription, before: dict[Hashable, _Place], now_s: float) -> None:
        dispatcher = subscription.dispatcher
        if dispatcher is None or not dispatcher.could_send:
            return
        if any(bucket.wait_s > 0 for bucket in subscription.dispatch_limits):
            return
        asleep = dispatcher.asleep
        place = (asleep, subscription.cursor.read_position, sent(subscription).messages)
        if not self._stalled((subscription, dispatcher), place, before, now_s):
            return
        self.stalls["asleep" if asleep else "reading"] += 1
        state = _state(subscription, dispatcher)
        if asleep:
            logger.error("%s after %g s or more, which is a bug: %s", WOKEN, STALL_S, state)
            dispatcher.wake()
        else:
            logger.warning("reads stalled for %g s or more: %s", STALL_S, state)

    def _stalled(self, what: Hashable, at: Hashable, before: dict[Hashable, _Place], now_s: float) -> bool:
        """True once for each stall."""
        known = before.get(what)
        if known is None or known.at != at:
            known = _Place(at, now_s, logged=False)
        news = not known.logged and now_s - known.since_s >= STALL_S
        self._places[what] = known._replace(logged=known.logged or news)
        return news


def _state_of_log(topic: Topic) -> str:
    """Return the state that decides whether adds are stored."""
    log = topic.ledger
    return (
        f"{topic.name}: {log.waiting} pending adds, the log is {log.state.value}, ledger {log.ledgers.open_id}, "
        f"stored up to {tuple(log.last_confirmed)}, congested {log.congested}, error {log.error}"
    )


def _state(subscription: Subscription, dispatcher: Dispatcher) -> str:
    """Return the state that decides whether a subscription is sent entries."""
    cursor, log = subscription.cursor, subscription.ledger
    consumers = [
        f"{c.name}: permits {c.permits}, unacked {c.unacked}, blocked {c.blocked}, writable {c.connection.writable}"
        for c in subscription.consumers[:CONSUMERS_LOGGED_MAX]
    ]
    delayed, again = dispatcher.waiting
    return (
        f"{subscription} {type(dispatcher).__name__}: reads at {tuple(cursor.read_position)}, "
        f"acknowledged up to {tuple(cursor.mark_delete)}, stored up to {tuple(log.last_confirmed)}, "
        f"backlog {cursor.backlog()}, {delayed} delayed, {again} to be redelivered, "
        f"work: {dispatcher.waits_for or 'none'}; {len(subscription.consumers)} consumers: {'; '.join(consumers)}"
    )
