"""Topics whose cluster has moved: clients get the new cluster's address and are closed, so that they reconnect there.

    /admin/clusters/CLUSTER/policies        {"migrated": true, "migratedClusterUrl": {"brokerServiceUrl": …}, …}
    /admin/local-policies/tenant/namespace  {"migrated": true, …}: this namespace alone

Producers are redirected at once, consumers when their subscription has no backlog. Source: PersistentTopic.java
(checkClusterMigration), ServerCnx.java, AbstractTopic.java (getMigratedClusterUrl).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import NO_REQUEST, Command, encode_command
from bkctl.meta.documents import read_document
from bkctl.meta.namespaces import LOCAL_POLICIES
from bkctl.meta.pulsar_cluster import CLUSTERS

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore
    from bkdaemon.broker.dispatch.consumer import ClientLink

PRODUCER: Final = 0
CONSUMER: Final = 1
_VERSION: Final = 20
"""The first protocol version whose clients know TOPIC_MIGRATED."""


async def moved_to(store: MetadataStore, cluster: str, namespace: str) -> str | None:
    """Returns the broker service URL of the cluster that a namespace has moved to; None if it has not moved."""
    value: dict[str, Any] = {}
    for path in (f"{CLUSTERS}/{cluster}", f"{CLUSTERS}/{cluster}/policies"):  # Java used the first before 3.1
        found = await read_document(store, path)
        value |= found.value if found is not None else {}
    url = (value.get("migratedClusterUrl") or {}).get("brokerServiceUrl")
    if not url or value.get("migrated"):
        return url or None
    local = await read_document(store, f"{LOCAL_POLICIES}/{namespace}")
    return str(url) if local is not None and local.value.get("migrated") else None


def send_migrated(connection: ClientLink, resource: int, number: int, url: str) -> None:
    """Sends a client the new address for its producer or consumer; older clients get nothing."""
    if connection.conversation.protocol_version >= _VERSION:
        migrated = encode_command(
            Command.TOPIC_MIGRATED, resource_id=number, resource_type=resource, brokerServiceUrl=url
        )
        connection.queue((migrated,))


def redirect_client(connection: ClientLink, resource: int, number: int, url: str) -> None:
    """Sends a client the new address for its producer or consumer, and closes that."""
    send_migrated(connection, resource, number, url)
    if resource == PRODUCER:
        connection.queue((encode_command(Command.CLOSE_PRODUCER, producer_id=number, request_id=NO_REQUEST),))
    else:
        connection.queue((encode_command(Command.CLOSE_CONSUMER, consumer_id=number, request_id=NO_REQUEST),))
