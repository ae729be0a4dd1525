"""The age of a topic's oldest backlog, from the times of its ledgers, without a read.

A ledger's time is that of its close. So nothing is reported while the oldest backlog
starts in the open ledger, and no age is overstated. Source: PersistentTopic.java
(updateOldPositionInfo, estimatedTimeBasedBacklogQuotaCheck), which updates it only with checks of backlog quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bkdaemon.broker.topic.topic import Topic


class Oldest(NamedTuple):
    """The cursor with the oldest backlog.

    Attributes:
        cursor: its name, in most cases that of a subscription.
        since_ms: when the ledger of its next entry was closed.
    """

    cursor: str
    since_ms: int

    def age_s(self, now_ms: int) -> int:
        """Returns the age of its next entry, in whole seconds."""
        return (now_ms - self.since_ms) // 1000


def oldest_of(topic: Topic) -> Oldest | None:
    """Returns the oldest backlog of a topic; None without a backlog, or if its ledger is open."""
    log = topic.ledger
    if not any(one.cursor.backlog() for one in topic.subscriptions.values()):
        return None
    cursor = min((one for one in log.cursors.values() if one.durable), key=lambda one: one.mark_delete, default=None)
    if cursor is None:
        return None
    info = log.ledgers.infos.get(log.next_position(cursor.mark_delete).ledger_id)
    if info is None or info.ledger_id == log.ledgers.open_id or not info.timestamp_ms:
        return None
    return Oldest(cursor.name, info.timestamp_ms)
