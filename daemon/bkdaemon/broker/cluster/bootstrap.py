"""bootstrapNamespaces: namespaces whose topics a broker opens at its start, before a client requests them.

As in Java's broker this is useful only for namespaces of one bundle; bundles of other brokers stay there.
Source: NamespaceService.java (registerBootstrapNamespaces), PulsarService.java (loadNamespaceTopics).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bkctl.errors import BkctlError
from bkctl.model.topic import TopicName

if TYPE_CHECKING:
    from bkdaemon.broker.cluster.broker import Broker

_log = logging.getLogger(__name__)


async def take_namespaces(broker: Broker) -> None:
    """Takes the configured namespaces, one after the other; one that fails is logged and skipped."""
    for namespace in broker.config.bootstrap_namespaces:
        try:
            await _take(broker, namespace)
        except BkctlError as e:
            _log.warning("failed to acquire bootstrap namespace %s: %s; skipping it", namespace, e.message)


async def _take(broker: Broker, namespace: str) -> None:
    backend = broker.backend
    count = len(await backend.ownership.bundles(namespace))
    if count != 1:
        _log.info("bootstrap namespace %s has %d bundles: they are acquired on lookup", namespace, count)
        return
    await backend.ownership.lookup(TopicName.parse(f"persistent://{namespace}/any"), authoritative=True)
    if not any(bundle.namespace == namespace for bundle in backend.ownership.owned):
        _log.info("bootstrap namespace %s is owned by another broker", namespace)
        return
    for topic in await backend.meta.topics.topics(namespace):
        try:
            await broker.server.topics.get(topic, create=False)
        except BkctlError as e:
            _log.warning("failed to open topic %s of a bootstrap namespace: %s", topic, e.message)
