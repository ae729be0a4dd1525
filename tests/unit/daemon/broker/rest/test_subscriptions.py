"""Single messages of a subscription in the REST interface."""

from __future__ import annotations

from bkctl.codec.pulsar import Command
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.test_figures import TOPIC, connected
from tests.unit.daemon.broker.rest.test_topic_policies import PATH


def test_peeking_creates_a_missing_subscription_at_the_start_of_the_topic() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        for number in range(2):
            client.publish(number, b"%d" % number)
            await client.next(Command.SEND_RECEIPT)
        answers = [await admin.ask("GET", f"{PATH}/subscription/new/position/{n}") for n in (1, 2, 3)]
        assert [(a.status, a.data) for a in answers[:2]] == [(200, b"0"), (200, b"1")]
        assert (answers[2].status, answers[2].body) == (404, {"reason": "Message not found"})
        assert (await admin.ok("GET", f"{PATH}/stats"))["subscriptions"]["new"]["msgBacklog"] == 2

    administering(scenario)


def test_peeking_creates_no_subscription_with_the_name_of_a_cursor_of_the_broker() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        for name in ("pulsar.dedup", "__compaction"):
            assert (await admin.ask("GET", f"{PATH}/subscription/{name}/position/1")).status == 404
        assert topic.subscriptions == {}

    administering(scenario)
