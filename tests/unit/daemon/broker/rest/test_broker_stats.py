"""Statistics of the whole broker in the REST interface."""

from __future__ import annotations

import json

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A
from tests.unit.daemon.broker.rest.prepared import OPERATED_TOPICS, prepare_namespace, write_topics


def test_statistics_of_the_broker_have_the_fields_of_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await write_topics(admin)
        told = await admin.ok("GET", f"{A}/broker-stats/topics")
        assert list(told["t/n"]["0x00000000_0xffffffff"]["persistent"]) == OPERATED_TOPICS
        topic = told["t/n"]["0x00000000_0xffffffff"]["persistent"][OPERATED_TOPICS[0]]
        assert list(topic) == [
            *("publishers", "replication", "subscriptions", "producerCount", "averageMsgSize", "msgRateIn"),
            *("msgRateOut", "msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount", "msgThroughputIn"),
            *("msgThroughputOut", "storageSize", "backlogSize", "pendingAddEntriesCount", "filteredEntriesCount"),
        ]
        assert topic["storageSize"] == topic["backlogSize"] > 0
        assert topic["subscriptions"]["s"]["msgBacklog"] == 3
        found = {
            json.dumps(one["dimensions"]): one["metrics"] for one in await admin.ok("GET", f"{A}/broker-stats/metrics")
        }
        mine = found['{"namespace": "t/n"}']
        assert (mine["brk_no_of_subscriptions"], mine["brk_msg_backlog"]) == (4, 12)
        assert mine["brk_storage_size"] == 2 * topic["storageSize"]
        assert found["{}"]["brk_ml_count"] == 2
        for path, status in (("mbeans", 405), ("allocator-stats/default", 405), ("allocator-stats/none", 406)):
            answer = await admin.ask("GET", f"{A}/broker-stats/{path}")
            assert answer.status == status
            assert answer.body["reason"]

    administering(scenario)
