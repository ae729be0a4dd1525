"""Requests that a partitioned topic, or one without storage, refuses with 405, in Java's words.

Source: PersistentTopicsBase.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from bkdaemon.broker.rest.base import METHOD_NOT_ALLOWED, Answered, Handler, topic_of

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker


def unpartitioned(handler: Handler, refusal: str) -> Handler:
    """Return a handler that refuses a partitioned topic; a single partition is accepted."""

    async def guarded(service: MaintainedBroker, request: Request) -> Any:
        topic = topic_of(request)
        if topic.partition < 0 and await service.backend.meta.topics.partitions(topic):
            raise Answered(METHOD_NOT_ALLOWED, refusal)
        return await handler(service, request)

    return guarded


def storing(handler: Handler, refusal: str) -> Handler:
    """Return a handler that refuses topics without storage."""

    async def guarded(service: MaintainedBroker, request: Request) -> Any:
        if not topic_of(request).persistent:
            raise Answered(METHOD_NOT_ALLOWED, refusal)
        return await handler(service, request)

    return guarded
