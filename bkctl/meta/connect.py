"""Opens the metadata store that a URI names; kazoo is loaded here and not before."""

from __future__ import annotations

from typing import Final

from bkctl.meta.store import MetadataStore
from bkctl.meta.uri import MetadataUri, parse_uri

TIMEOUT_S: Final = 15.0
SESSION_TIMEOUT_S: Final = 10.0  # BookKeeper's zkTimeout


async def open_store(
    uri: str | MetadataUri, *, timeout_s: float = TIMEOUT_S, session_timeout_s: float = SESSION_TIMEOUT_S
) -> MetadataStore:
    """A new session with the store; timeout_s is for opening it and for every operation.

    Raises:
        UsageError: not a URI of a supported store. Unavailable: none of its hosts answers.
    """
    parsed = parse_uri(uri) if isinstance(uri, str) else uri
    from bkctl.meta.zookeeper import ZooKeeperStore  # the import costs 60 ms, which a bad URI need not

    return await ZooKeeperStore.connect(parsed.hosts, timeout_s=timeout_s, session_timeout_s=session_timeout_s)
