"""Schemas of topics in Pulsar's REST interface. Source: SchemasResourceBase.java, SchemaRegistryServiceImpl.java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import Conflict, NotFound
from bkctl.model.topic import TopicName
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.rest.base import (
    ADMIN,
    UNPROCESSABLE,
    Handler,
    flag,
    namespace_of,
    object_of,
    reason,
    texts,
    topic_of,
)
from bkdaemon.broker.topic.backend import StoredSchema
from bkdaemon.broker.topic.compatibility import AVRO, JSON, SCHEMA_TYPES, check

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

SCHEMA: Final = ADMIN + "/schemas/{tenant}/{namespace}/{topic}"
TYPE_NUMBERS: Final = {name: number for number, name in SCHEMA_TYPES.items()}


async def _topic(service: MaintainedBroker, request: Request) -> TopicName:
    """Returns the topic of a request, which need not exist. Raises: NotFound, the namespace does not exist."""
    if not await service.backend.meta.namespaces.exists(namespace_of(request)):
        raise NotFound("Namespace not found")
    return topic_of(request)


async def schema(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns a version of a topic's schema, or the latest."""
    version = request.path_params.get("version")
    found = await service.backend.schema(await _topic(service, request), int(version) if version is not None else None)
    if found is None:
        raise NotFound("Schema not found")
    return _shown(found)


async def schemas(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns every version of a schema."""
    topic = await _topic(service, request)
    found = await service.backend.schemas(topic)
    if not found and not (await service.backend.meta.topics.schema_versions(topic))[0]:
        raise NotFound("Schema not found")
    return {"getSchemaResponses": [_shown(one) for one in found]}


async def metadata(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns the places where the versions are stored."""
    versions, _ = await service.backend.meta.topics.schema_versions(await _topic(service, request))
    if not versions:
        raise NotFound("Schema not found")
    index = [
        {"ledgerId": one.position.ledger_id, "entryId": one.position.entry_id, "version": one.version}
        for one in versions
    ]
    return {"info": index[-1], "index": index}


async def _given(request: Request) -> StoredSchema | Response:
    body = await object_of(request)
    number = TYPE_NUMBERS.get(str(body.get("type", "")).upper())
    if number is None:
        return reason(UNPROCESSABLE, f"unknown schema type {body.get('type')!r}")
    text = str(body.get("schema", ""))
    if number in (JSON, AVRO):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return reason(UNPROCESSABLE, f"Invalid schema definition data for {SCHEMA_TYPES[number]} schema")
    return StoredSchema(-1, number, text.encode(), texts(body.get("properties") or {}))


async def post_schema(service: MaintainedBroker, request: Request) -> Any:
    """Stores a schema that is compatible with earlier ones; an existing one keeps its version."""
    topic, given = await _topic(service, request), await _given(request)
    if isinstance(given, Response):
        return given
    try:
        version = await service.server.schemas.admit(topic, given, by_client=False)
    except Refusal as e:
        if e.code != ErrorCode.INCOMPATIBLE_SCHEMA:
            raise
        raise Conflict(e.message) from None
    return {"version": {"version": version}}


async def compatibility(service: MaintainedBroker, request: Request) -> Any:
    """Returns whether a schema is compatible with earlier ones."""
    topic, given = await _topic(service, request), await _given(request)
    if isinstance(given, Response):
        return given
    rules = await service.backend.rules(topic)
    fits = True
    try:
        check(given, await service.backend.schemas(topic), rules)
    except Refusal:
        fits = False
    told = {"compatibility": fits, "schemaCompatibilityStrategy": rules.schema_compatibility}
    return JSONResponse(told, status_code=202)


async def version_of(service: MaintainedBroker, request: Request) -> Any:
    """Returns the version of a schema, -1 if it is not stored."""
    topic, given = await _topic(service, request), await _given(request)
    if isinstance(given, Response):
        return given
    for stored in reversed(await service.backend.schemas(topic)):
        if (stored.type, stored.data) == (given.type, given.data):
            return {"version": stored.version}
    return {"version": -1}


async def delete_schema(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Marks a topic's schema as deleted, in a new version; with force deletes every version."""
    storage, topic = service.backend.schema_storage, await _topic(service, request)
    if flag(request, "force"):
        await storage.delete(topic)
        return {"version": -1}
    return {"version": await storage.mark_deleted(topic)}


async def delete_schemas(service: MaintainedBroker, topic: TopicName) -> None:
    """Deletes every version of a schema."""
    await service.backend.schema_storage.delete(topic)


def _shown(found: StoredSchema) -> dict[str, Any]:
    return {
        "version": found.version,
        "type": SCHEMA_TYPES.get(found.type, str(found.type)),
        "timestamp": found.timestamp_ms,
        "data": found.data.decode("utf-8", "replace"),
        "properties": found.properties,
    }


SCHEMAS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{SCHEMA}/schema"): schema,
    ("GET", SCHEMA + "/schema/{version:int}"): schema,
    ("GET", f"{SCHEMA}/schemas"): schemas,
    ("GET", f"{SCHEMA}/metadata"): metadata,
    ("POST", f"{SCHEMA}/schema"): post_schema,
    ("POST", f"{SCHEMA}/compatibility"): compatibility,
    ("POST", f"{SCHEMA}/version"): version_of,
    ("DELETE", f"{SCHEMA}/schema"): delete_schema,
}
