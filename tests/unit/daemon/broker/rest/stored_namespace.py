"""A namespace t1/n with a topic and a partitioned topic, for tests of this folder."""

from __future__ import annotations

from tests.broker.admin import Admin
from tests.unit.daemon.broker.rest.clients import A

STORED_NAMESPACE = f"{A}/namespaces/t1/n"
STORED_TOPIC = f"{A}/persistent/t1/n/t"
PARTITIONED = f"{A}/persistent/t1/n/pt"


async def prepare_stored(admin: Admin) -> None:
    """Create the namespace and its topics."""
    await admin.ok("PUT", f"{A}/tenants/t1", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", STORED_NAMESPACE, {"bundles": {"numBundles": 2}})
    await admin.ok("PUT", STORED_TOPIC)
    await admin.ok("PUT", f"{PARTITIONED}/partitions", 2)
