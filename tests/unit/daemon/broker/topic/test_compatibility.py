"""Schemas of producers and consumers against the stored ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.rules import TopicRules
from bkdaemon.broker.topic.backend import StoredSchema
from bkdaemon.broker.topic.compatibility import check

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from tests.broker.raw import RawClient, Stage, on_stage
from tests.broker.scenarios import SHARED, TOPIC


def avro(*fields: dict[str, Any]) -> bytes:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)}).encode()


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_DEFAULT = {**B, "default": 0}


async def versions(client: RawClient) -> int:
    told = await client.ask(Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE, topic=TOPIC)
    return -1 if told.HasField("error_code") else int.from_bytes(told.schema_version, "big")


def pair(key: bytes, value: bytes, kinds: tuple[str, str] = ("STRING", "AVRO")) -> StoredSchema:
    data = b"".join(len(part).to_bytes(4, "big") + part for part in (key, value))
    return StoredSchema(0, 15, data, {"key.schema.type": kinds[0], "value.schema.type": kinds[1]})


def native(name: str) -> StoredSchema:
    return StoredSchema(0, 20, json.dumps({"rootMessageTypeName": name}).encode(), {})


def test_a_consumer_schema_must_read_the_stored_one_and_is_not_stored_itself() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()

        def schema(*fields: dict[str, Any]) -> Any:
            return api.Schema(name="s", schema_data=avro(*fields), type=4)

        assert not hasattr(await client.subscribe(TOPIC, kind=SHARED, schema=schema(A)), "error")  # nobody was there
        assert await versions(client) == 0
        await client.produce(TOPIC, schema=schema(A))
        spaced = api.Schema(name="s", schema_data=b" " + avro(A), type=4)
        assert (await client.produce(TOPIC, 1, schema=spaced)).schema_version == bytes(8)
        for number, (fields, taken) in enumerate((((A, B_DEFAULT), True), ((), True), ((A, B), False)), 1):
            told = await client.subscribe(TOPIC, kind=SHARED, consumer_id=number, schema=schema(*fields))
            assert hasattr(told, "error") is not taken
        assert told.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert await versions(client) == 0
        refused = await client.produce(TOPIC, 2, schema=schema(A, B))
        assert refused.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert (await client.produce(TOPIC, 3, schema=schema(A, B_DEFAULT))).schema_version == bytes(7) + b"\1"

    on_stage(scenario)


def test_a_consumer_schema_is_refused_on_a_used_topic_without_a_schema() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        schema = api.Schema(name="s", schema_data=b"", type=1)
        auto = api.Schema(name="s", schema_data=b"", type=21)
        await client.subscribe(TOPIC, kind=SHARED, schema=auto)
        assert await versions(client) == -1
        await client.subscribe(f"{TOPIC}2", kind=SHARED, consumer_id=1)
        told = await client.subscribe(f"{TOPIC}2", kind=SHARED, consumer_id=2, schema=schema)
        assert told.error == ErrorCode.INCOMPATIBLE_SCHEMA
        assert not hasattr(await client.subscribe(TOPIC, kind=SHARED, consumer_id=3, schema=schema), "error")
        assert await versions(client) == 0

    on_stage(scenario)


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (pair(b"", avro(A, B_DEFAULT)), pair(b"", avro(A)), True),
        (pair(b"", avro(A, B)), pair(b"", avro(A)), False),
        (pair(b"", avro(A), ("STRING", "JSON")), pair(b"", avro(A)), False),
        (StoredSchema(0, 15, b"\0", {}), pair(b"", b""), False),
        (native("a.M"), native("a.M"), True),
        (native("a.N"), native("a.M"), False),
        (StoredSchema(0, 20, b"{", {}), native("a.M"), False),
    ],
)
def test_key_value_and_native_protobuf_schemas_are_compared(new: StoredSchema, old: StoredSchema, fits: bool) -> None:
    if fits:
        check(new, [old], TopicRules())
        return
    with pytest.raises(Refusal) as refused:
        check(new, [old], TopicRules())
    assert refused.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
