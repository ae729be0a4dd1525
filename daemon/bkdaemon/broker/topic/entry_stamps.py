"""Broker entry metadata in front of a topic's entries: time of arrival, and the index of the last message.

    brokerEntryMetadataInterceptors=….AppendBrokerTimestampMetadataInterceptor,….AppendIndexMetadataInterceptor

Messages of a topic are numbered from 0. The number continues from the last stored entry; without entries, from
the property `index` of the topic's node, which is written with the list of ledgers. Source:
AppendIndexMetadataInterceptor.java, ManagedLedgerInterceptorImpl.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from bkctl.codec.pulsar_entry import broker_metadata, with_broker_metadata

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger
    from bkdaemon.broker.rules import TopicRules

INDEX_PROPERTY: Final = "index"
NONE: Final = -1


class EntryStamps:
    """The broker entry metadata of one open topic.

    Args:
        ledger: its log; the property is stored in its node.
        now_ms: the clock, if entries get their time.
        index: the index of the last message, if messages are numbered.
    """

    def __init__(self, ledger: ManagedLedger, now_ms: Callable[[], int] | None, index: int | None) -> None:
        self.index = index
        self._ledger = ledger
        self._now_ms = now_ms
        self._waiting: deque[int] = deque()
        self._set_property(index)

    @classmethod
    async def recover(cls, ledger: ManagedLedger, rules: TopicRules, now_ms: Callable[[], int]) -> EntryStamps | None:
        """Continues the numbers of the topic's last owner; returns None if entries get no metadata.

        Raises:
            Unavailable, …: the last entry cannot be read now.
        """
        clock = now_ms if rules.stamp_time else None
        if not rules.stamp_index:
            return cls(ledger, clock, None) if clock is not None else None
        index = int(ledger.properties.get(INDEX_PROPERTY, NONE))
        last = ledger.last_confirmed
        if ledger.ledgers.contains(last):
            ((_, entry),) = await ledger.read(last, 1, 1)
            found = broker_metadata(entry)
            if found is not None and found.HasField("index"):
                index = int(found.index)
        return cls(ledger, clock, index)

    def stamp(self, entries: Sequence[bytes], messages: Sequence[int]) -> list[bytes]:
        """Returns the entries as they are stored; messages has the number of messages of each."""
        now_ms = None if self._now_ms is None else self._now_ms()
        if self.index is None:
            return [with_broker_metadata(entry, now_ms, None) for entry in entries]
        stamped = []
        for entry, count in zip(entries, messages, strict=True):
            self.index += max(count, 1)
            self._waiting.append(self.index)
            stamped.append(with_broker_metadata(entry, now_ms, self.index))
        return stamped

    def stored(self, entries: int) -> None:
        """Records stored entries: the node's next write has the index of the last one."""
        last = None
        for _ in range(min(entries, len(self._waiting))):
            last = self._waiting.popleft()
        self._set_property(last)

    def _set_property(self, index: int | None) -> None:
        if index is not None:
            self._ledger.properties[INDEX_PROPERTY] = str(index)
