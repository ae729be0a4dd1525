"""Statistics that a request asks for by an option, and the state of a cursor's reads."""

from __future__ import annotations

from bkctl.codec.pulsar import Command
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import PATH, SHARED, TOPIC, connected, stats_of


def test_the_oldest_publish_time_of_a_backlog_is_read_on_request() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC)
        for i in range(2):
            client.publish(i)
            await client.next(Command.SEND_RECEIPT)
        topic, subscription, _ = await stats_of(admin)
        assert topic["earliestMsgPublishTimeInBacklogs"] == subscription["earliestMsgPublishTimeInBacklog"] == 0
        query = "?getEarliestTimeInBacklog=true&subscriptionBacklogSize=false"
        query += "&excludePublishers=true&excludeConsumers=true"
        topic, subscription, _ = await stats_of(admin, query)
        assert topic["earliestMsgPublishTimeInBacklogs"] == subscription["earliestMsgPublishTimeInBacklog"] == 1
        assert (subscription["backlogSize"], topic["publishers"], subscription["consumers"]) == (-1, [], [])
        await admin.ok("POST", f"{PATH}/subscription/s/skip_all")
        topic, subscription, _ = await stats_of(admin, query)
        assert subscription["earliestMsgPublishTimeInBacklog"] == -1

    administering(scenario)


def test_internal_statistics_name_cursors_that_wait_for_entries() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        await client.subscribe(TOPIC, "idle")
        await client.subscribe(TOPIC, "s", kind=SHARED, consumer_id=1)
        client.flow(10, 1)
        await client.ask(Command.GET_LAST_MESSAGE_ID, Command.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
        told = await admin.ok("GET", f"{PATH}/internalStats")
        assert told["waitingCursorsCount"] == 1
        one, idle = told["cursors"]["s"], told["cursors"]["idle"]
        keys = ("active", "waitingReadOp", "pendingReadOps", "subscriptionHavePendingRead")
        assert [one[key] for key in keys] == [True, True, 0, True]
        assert [idle[key] for key in keys] == [True, False, 0, False]
        await client.ask(Command.CLOSE_CONSUMER, consumer_id=1)
        told = await admin.ok("GET", f"{PATH}/internalStats")
        assert (told["waitingCursorsCount"], told["cursors"]["s"]["active"]) == (0, False)

    administering(scenario)
