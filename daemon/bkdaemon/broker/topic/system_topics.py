"""Topics and namespaces of the system's own, as Java names them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName

SYSTEM_NAMESPACE: Final = "pulsar/system"
HEARTBEAT_NAMESPACE: Final = re.compile(r"pulsar/[^:]+:\d+")
SYSTEM_TOPICS: Final = frozenset(
    {"__change_events", *(f"__transaction_buffer_snapshot{kind}" for kind in ("", "_indexes", "_segments"))}
)


def internal_topic(name: TopicName) -> bool:
    """True for a topic of the system's own, as Java names them."""
    whole = name.partitioned
    return (
        whole.namespace_name == SYSTEM_NAMESPACE
        or HEARTBEAT_NAMESPACE.fullmatch(whole.namespace_name) is not None
        or whole.local in SYSTEM_TOPICS
        or whole.local.endswith("__transaction_pending_ack")
    )
