"""Statistics of topics in the REST interface that depend on who is served."""

from __future__ import annotations

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.test_figures import EXCLUSIVE, FAILOVER, SHARED, TOPIC, connected, told_of


def test_the_active_consumer_of_a_failover_subscription_is_the_one_that_is_served() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        for consumer_id, name in enumerate(("c", "a", "b")):
            await client.subscribe(TOPIC, kind=FAILOVER, consumer_id=consumer_id, consumer_name=name)
        active = (await admin.topic(TOPIC)).subscriptions["s"].dispatcher.active  # type: ignore[union-attr]
        assert active.name != "c"
        assert (await told_of(admin))[1]["activeConsumerName"] == active.name

    administering(scenario)


def test_subscriptions_without_a_single_active_consumer_name_none() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.subscribe(TOPIC, kind=EXCLUSIVE)
        assert (await told_of(admin))[1]["activeConsumerName"] == "c0"
        await client.subscribe(TOPIC, "other", kind=SHARED, consumer_id=1)
        topic = (await told_of(admin))[0]
        assert "activeConsumerName" not in topic["subscriptions"]["other"]

    administering(scenario)
