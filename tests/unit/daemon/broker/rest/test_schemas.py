"""The schemas of a topic in the REST interface and the binary protocol, as Java 4.0.7 stores and returns them."""

from __future__ import annotations

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, ErrorCode
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import TOPIC, connected

SCHEMAS = "/admin/v2/schemas/public/default/t"
STRING = {"type": "STRING", "schema": "", "properties": {"a": "1"}}
INT32 = {"type": "INT32", "schema": "", "properties": {}}
ANY_CHANGE = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
GET_SCHEMA = (Command.GET_SCHEMA, Command.GET_SCHEMA_RESPONSE)


def test_a_bytes_schema_of_a_producer_is_version_0_and_is_returned() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        schema = api.Schema(name="Bytes", schema_data=b"", type=0)
        schema.properties.add(key="pulsar", value="hello")
        made = await client.produce(TOPIC, schema=schema)
        assert made.schema_version == bytes(8)
        stored = await admin.ok("GET", f"{SCHEMAS}/schema")
        assert (stored["version"], stored["type"], stored["properties"]) == (0, "NONE", {"pulsar": "hello"})
        found = await client.ask(*GET_SCHEMA, topic=TOPIC, schema_version=made.schema_version)
        assert not found.HasField("error_code"), found.error_message
        assert (found.schema.type, found.schema_version) == (0, bytes(8))
        assert (await client.subscribe(TOPIC, schema=schema)).DESCRIPTOR.name == "CommandSuccess"

    administering(scenario)


def test_a_consumer_with_a_bytes_schema_is_refused_on_a_used_topic_without_a_schema() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        refused = await client.subscribe(TOPIC, schema=api.Schema(name="Bytes", schema_data=b"", type=0))
        text = "Failed to add schema to an active topic with empty(BYTES) schema: new schema type NONE"
        assert (refused.error, refused.message) == (ErrorCode.INCOMPATIBLE_SCHEMA, text)

    administering(scenario)


def test_a_further_schema_of_type_none_is_not_stored() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        kinds = (Command.GET_OR_CREATE_SCHEMA, Command.GET_OR_CREATE_SCHEMA_RESPONSE)
        answer = await client.ask(*kinds, topic=TOPIC, schema=api.Schema(name="Bytes", schema_data=b"", type=0))
        assert answer.schema_version == b""
        assert (await admin.ask("GET", f"{SCHEMAS}/schema")).status == 404

    administering(scenario)


def test_a_bytes_schema_stored_by_rest_is_bytes_to_rest_and_none_to_clients() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await admin.ok("POST", f"{SCHEMAS}/schema", {"type": "BYTES", "schema": "", "properties": {}})
        assert (await admin.ok("GET", f"{SCHEMAS}/schema"))["type"] == "BYTES"
        assert (await client.ask(*GET_SCHEMA, topic=TOPIC)).schema.type == 0

    administering(scenario)


def test_versions_up_to_a_deletion_are_not_found() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await admin.ok("PUT", ANY_CHANGE, "ALWAYS_COMPATIBLE")
        for schema in (STRING, INT32):
            await admin.ok("POST", f"{SCHEMAS}/schema", schema)
        assert (await admin.ok("GET", f"{SCHEMAS}/schema/0"))["type"] == "STRING"
        assert (await admin.ok("DELETE", f"{SCHEMAS}/schema"))["version"] == 2
        await admin.ok("POST", f"{SCHEMAS}/schema", STRING)
        statuses = [(await admin.ask("GET", f"{SCHEMAS}/schema/{version}")).status for version in range(5)]
        assert statuses == [404, 404, 404, 200, 404]
        gone = await client.ask(*GET_SCHEMA, topic=TOPIC, schema_version=bytes(8))
        assert gone.error_code == ErrorCode.TOPIC_NOT_FOUND
        versions, _ = await admin.service.backend.meta.topics.schema_versions(TopicName.parse(TOPIC))
        assert [len(one.hash) for one in versions] == [32, 32, 0, 32]

    administering(scenario)
