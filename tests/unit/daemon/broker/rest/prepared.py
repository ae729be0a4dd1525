"""A namespace t/n with two topics and their messages, for tests of this folder."""

from __future__ import annotations

from tests.broker.admin import Admin
from tests.unit.daemon.broker.rest.clients import A
from tests.unit.daemon.broker.rest.recorded import recorded_entry
from tests.unit.log.logs import until

OPERATED = f"{A}/namespaces/t/n"
OPERATED_TOPICS = [f"persistent://t/n/{name}" for name in ("x", "y")]


async def prepare_namespace(admin: Admin, bundles: int = 1) -> None:
    """Create the namespace."""
    await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", OPERATED, {"bundles": {"numBundles": bundles}})


async def write_topics(admin: Admin, subscriptions: tuple[str, ...] = ("s", "other")) -> None:
    """Create two topics with three messages each, and subscriptions at their start."""
    for name in OPERATED_TOPICS:
        topic = await admin.topic(name)
        for subscription in subscriptions:
            path = f"{A}/{name.replace('://', '/')}/subscription/{subscription}"
            await admin.ok("PUT", path, {"ledgerId": -1, "entryId": -1})
        topic.ledger.add_many([recorded_entry(i) for i in range(3)])
        await until(lambda topic=topic: topic.ledger.added == 3)  # type: ignore[misc]
