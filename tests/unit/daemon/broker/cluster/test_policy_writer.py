"""Policies of single topics as events in the system topic of their namespace."""

from __future__ import annotations

import pytest
from bkdaemon.broker.cluster.policy_writer import write_policies
from bkinspect.topic_policies import policies_key, system_topic

from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.topic import Position, TopicName
from tests.broker.admin import Admin, administering

TOPIC = TopicName.parse("persistent://public/default/t")
EVENTS = str(system_topic("public/default"))
POLICIES = {"maxProducerPerTopic": 3, "isGlobal": False}


def test_written_policies_take_effect_until_they_are_removed() -> None:
    async def scenario(admin: Admin) -> None:
        policies = admin.service.backend.policies
        await admin.topic(EVENTS)
        await write_policies(admin.service, TOPIC, POLICIES)
        found = await policies.of_topic(TOPIC)
        assert found is not None
        assert found["maxProducerPerTopic"] == 3
        assert await policies.of_topic(TopicName.parse("persistent://public/default/other")) is None
        await write_policies(admin.service, TOPIC, None)
        assert await policies.of_topic(TOPIC) is None

    administering(scenario)


def test_an_event_has_the_key_of_its_topic_and_is_replicated_only_if_it_is_global() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(EVENTS)
        await write_policies(admin.service, TOPIC, POLICIES)
        await write_policies(admin.service, TOPIC, POLICIES | {"isGlobal": True}, everywhere=True)
        await write_policies(admin.service, TOPIC, None)
        log = (await admin.topic(EVENTS)).ledger
        found: dict[Position, bytes] = {}
        for ledger_id in log.ledgers.ids[:-1]:  # one for each event; the last is open and empty
            found |= dict(await log.read(Position(ledger_id, 0), 9, 1 << 20))
        metadata = [split_entry(bytes(payload))[0] for payload in found.values()]
        keys = [policies_key(str(TOPIC), everywhere=everywhere) for everywhere in (False, True, False)]
        assert [one.partition_key for one in metadata] == keys
        assert [list(one.replicate_to) for one in metadata] == [["lab"], [], ["lab"]]
        assert [one.null_value for one in metadata] == [False, False, True]
        assert {one.schema_version for one in metadata} == {bytes(8)}

    administering(scenario)


def test_policies_that_no_bookie_stores_are_unavailable() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(EVENTS)
        await write_policies(admin.service, TOPIC, POLICIES)
        for number in range(4):
            admin.cluster.kill(BookieId(f"b{number}:3181"))
        with pytest.raises(Unavailable):
            await write_policies(admin.service, TOPIC, POLICIES | {"maxProducerPerTopic": 4})

    administering(scenario)
