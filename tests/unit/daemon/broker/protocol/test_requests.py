"""Requests without a producer or consumer: lookups, lists and watches of topics, schemas, in virtual time."""

from __future__ import annotations

from typing import Any

from bkdaemon.broker.protocol.server_limits import ServerLimits
from bkdaemon.broker.rules import TopicRules

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.codec.pulsar_hash import topics_hash
from bkctl.model.topic import TopicName
from tests.broker.raw import Stage, on_stage
from tests.broker.scenarios import NON_PERSISTENT_TOPIC, TOPIC, producing

LIMITS = ServerLimits()


def test_lookups_and_partitions_are_answered_as_by_java() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()

        async def partitions(topic: str, **fields: Any) -> Any:
            return await client.ask(
                Command.PARTITIONED_METADATA, Command.PARTITIONED_METADATA_RESPONSE, topic=topic, **fields
            )

        async def lookup(topic: str) -> Any:
            return await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=topic)

        answer = await partitions(TOPIC)
        assert (answer.response, answer.partitions, answer.HasField("error")) == (0, 0, False)
        for topic, fields, error in (
            (TOPIC, {"metadata_auto_creation_enabled": False}, ErrorCode.TOPIC_NOT_FOUND),
            ("persistent://no/where/t", {}, ErrorCode.TOPIC_NOT_FOUND),
            ("persistent://public/t", {}, ErrorCode.INVALID_TOPIC_NAME),
        ):
            answer = await partitions(topic, **fields)
            assert (answer.response, answer.error, answer.HasField("partitions")) == (1, error, False), topic
        answer = await lookup(TOPIC)
        assert (answer.response, answer.authoritative, answer.proxy_through_service_url) == (1, True, False)
        assert not answer.HasField("brokerServiceUrlTls")
        assert ((await lookup("persistent://no/where/t")).error) == ErrorCode.TOPIC_NOT_FOUND
        assert ((await lookup("persistent://public/t")).error) == ErrorCode.INVALID_TOPIC_NAME

    on_stage(scenario)


def test_a_pattern_is_looked_up_like_a_topic_and_creates_none() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(client_version="Pulsar-Java-v4.0.8")
        pattern = "persistent://public/default/from-.*"
        answer = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=pattern)
        assert answer.response == 1  # Connect
        listed = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE, Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, namespace="public/default"
        )
        assert list(listed.topics) == [], "the look made no topic"

    on_stage(scenario)


def test_non_persistent_topics_are_listed_on_request() -> None:
    async def scenario(stage: Stage) -> None:
        client = await producing(stage)
        await client.produce(NON_PERSISTENT_TOPIC, producer_id=1)
        for mode, wanted in ((0, [TOPIC]), (1, [NON_PERSISTENT_TOPIC]), (2, [NON_PERSISTENT_TOPIC, TOPIC])):
            answer = await client.ask(
                Command.GET_TOPICS_OF_NAMESPACE,
                Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                namespace="public/default",
                mode=mode,
            )
            assert list(answer.topics) == wanted

    on_stage(scenario)


def test_topics_are_listed_and_changes_of_a_watched_list_are_sent() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.produce(TOPIC)
        answer = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE,
            Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            topics_pattern="persistent://public/default/t.*",
        )
        assert (list(answer.topics), answer.filtered, answer.changed) == ([TOPIC], True, True)
        again = await client.ask(
            Command.GET_TOPICS_OF_NAMESPACE,
            Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            topics_hash=answer.topics_hash,
        )
        assert (list(again.topics), again.changed) == ([], False)
        watch = await client.ask(
            Command.WATCH_TOPIC_LIST,
            Command.WATCH_TOPIC_LIST_SUCCESS,
            watcher_id=5,
            namespace="public/default",
            topics_pattern="persistent://public/default/.*",
        )
        assert list(watch.topic) == [TOPIC]
        await client.produce(f"{TOPIC}2", producer_id=1)
        update = (await client.next(Command.WATCH_TOPIC_UPDATE)).message
        assert (list(update.new_topics), list(update.deleted_topics)) == ([f"{TOPIC}2"], [])
        await client.ask(Command.WATCH_TOPIC_LIST_CLOSE, watcher_id=5)
        await client.produce(f"{TOPIC}3", producer_id=2)
        assert client.said == []

    on_stage(scenario)


def test_a_pattern_that_matches_a_topic_returns_its_partitions() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        names = [f"persistent://public/default/{n}" for n in ("a.b", "axb", "t-partition-0", "t-partition-1", "tt")]
        for i, name in enumerate(names):
            if "partition" in name:
                stage.backend.partitioned[TopicName.parse(name).partitioned] = 2
            await client.subscribe(name, consumer_id=i)

        async def fitting(pattern: str) -> tuple[bool, list[str]]:
            told = await client.ask(
                Command.GET_TOPICS_OF_NAMESPACE,
                Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                namespace="public/default",
                topics_pattern=pattern,
            )
            return told.filtered, [n.rpartition("/")[2] for n in told.topics]

        assert await fitting("persistent://public/default/t") == (True, ["t-partition-0", "t-partition-1"])
        assert await fitting("public/default/.*-partition-0") == (True, [])
        assert await fitting(r"persistent://public/default/\Qa.b\E") == (True, ["a.b"])
        assert await fitting("(non-persistent://public/default/tt)") == (True, ["tt"])
        assert await fitting("x" * (LIMITS.pattern_length_max + 1)) == (False, [n.rpartition("/")[2] for n in names])

    on_stage(scenario)


def test_invalid_watches_are_refused_and_a_repeated_one_replaces_the_first() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        asked = {"namespace": "public/default", "watcher_id": 3}
        kinds = (Command.WATCH_TOPIC_LIST_SUCCESS, Command.ERROR)
        told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="x" * 51, **asked)
        assert (told.error, told.message[-2:]) == (ErrorCode.NOT_ALLOWED, "50")
        told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="(", **asked)
        assert told.error == ErrorCode.INVALID_TOPIC_NAME
        for _ in range(2):
            told = await client.ask(Command.WATCH_TOPIC_LIST, *kinds, topics_pattern="public/default/.*", **asked)
            assert told.topics_hash == topics_hash([])
        await client.subscribe(TOPIC)
        assert (await client.next(Command.WATCH_TOPIC_UPDATE)).message.new_topics == [TOPIC]
        await client.ask(Command.WATCH_TOPIC_LIST_CLOSE, watcher_id=3)
        assert not [s for s in client.said if s.kind == Command.WATCH_TOPIC_UPDATE]

    on_stage(scenario)


def test_schema_requests_fail_without_a_topic_or_a_version() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        told = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC, schema_version=b"")
        assert (told.error_code, told.error_message) == (ErrorCode.INCOMPATIBLE_SCHEMA, "Empty schema version")
        schema = api.Schema(name="s", schema_data=b"", type=1)
        kinds = (Command.GET_OR_CREATE_SCHEMA, Command.GET_OR_CREATE_SCHEMA_RESPONSE)
        stage.backend.rules_now = TopicRules(auto_create_topic=True)
        assert (await client.ask(*kinds, topic=TOPIC, schema=schema)).error_code == ErrorCode.TOPIC_NOT_FOUND
        await client.produce(TOPIC)
        told = await client.ask(*kinds, topic=TOPIC, schema=schema)
        assert (told.HasField("error_code"), told.schema_version) == (False, bytes(8))

    on_stage(scenario)


def test_errors_of_schema_requests_are_in_their_own_response() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
        assert schema.error_code == ErrorCode.TOPIC_NOT_FOUND
        schema = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic="a/b")
        assert schema.error_code == ErrorCode.INVALID_TOPIC_NAME
        assert client.said == [], "no ERROR beside it"

    on_stage(scenario)


def test_an_auth_response_without_a_challenge_closes_the_connection() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        client.send(Command.AUTH_RESPONSE, response=api.AuthData(auth_method_name="token", auth_data=b"x"))
        told = (await client.next(Command.ERROR)).message
        assert (told.request_id, told.error) == (2**64 - 1, ErrorCode.AUTHENTICATION)
        await client.end()

    on_stage(scenario)
