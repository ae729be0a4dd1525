"""Common parts of the REST interface: answers, errors, and sending a request to the broker that owns a topic.

A handler gets the service and the request and returns what becomes JSON, None for 204, or a Response of its own.
Errors are {"reason": …}: 400 invalid JSON, 404 not found, 409 already exists, 412 precondition failed, 503 retry.
Source: AdminResource.java.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bkctl.errors import AlreadyExists, BkctlError, Conflict, NotFound, Refused, Unauthorized, Unavailable, UsageError
from bkctl.meta.policies import InvalidPolicy
from bkctl.model.topic import TopicName
from bkdaemon.broker.cluster.ownership import NoBroker
from bkdaemon.broker.rest.forwarding import TEMPORARY_REDIRECT, UNAUTHORIZED, forward

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

ADMIN: Final = "/admin/v2"
BODY_BYTES_MAX: Final = 1024 * 1024
TOPIC_PLACE: Final = 6
"""Index of the topic in /admin/v2/persistent/tenant/namespace/topic/…, split at slashes."""
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
NOT_ACCEPTABLE: Final = 406
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422
NOT_IMPLEMENTED: Final = 501
NAMED_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)
"""Valid names of tenants and namespaces."""
BAD_PATH: Final = re.compile(rb"%(?:00|(?![0-9A-Fa-f]{2}))")
"""Escapes that Java's Jetty refuses in a path; other control characters may be in names of topics and subscriptions."""
PARTITIONS_AT_A_TIME_MAX: Final = 16
"""Partitions of one request that are processed concurrently."""

Handler = Callable[["MaintainedBroker", Request], Awaitable[Any]]

logger = logging.getLogger(__name__)


class Elsewhere(Exception):
    """Another broker owns the topic and has to handle the request."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Answered(Exception):
    """Ends the request with this status and reason.

    Attributes:
        status: the HTTP status.
        text: the reason.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class _Domain(Convertor[str]):
    """persistent or non-persistent, in a path."""

    regex = "(?:non-)?persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Whole(Convertor[int]):
    """A whole number in a path, with at most the digits of 64 bits; Python refuses to parse more than 4300 digits."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("domain", _Domain())
register_url_convertor("int", _Whole())


def status_of(error: BkctlError) -> int:
    """Returns the HTTP status that Java's broker returns for an error."""
    if isinstance(error, Unauthorized) and error.status in UNAUTHORIZED:  # by the broker that was asked for the caller
        return error.status
    for kind, status in ((NotFound, 404), (AlreadyExists, 409), (Refused, 412), (UsageError, 412), (Conflict, 409)):
        if isinstance(error, kind):
            return status
    return 503 if isinstance(error, Unavailable) else 500


def routes(service: MaintainedBroker, table: dict[tuple[str, str], Handler]) -> list[Route]:
    """Returns the routes of a table (method, path) → handler; a path may have several methods."""
    by_path: dict[str, dict[str, Handler]] = {}
    for (method, path), handler in table.items():
        by_path.setdefault(path, {})[method] = handler
    return [Route(path, _endpoint(service, one), methods=sorted(one)) for path, one in by_path.items()]


def _endpoint(service: MaintainedBroker, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if BAD_PATH.search(request.scope.get("raw_path", b"")):
            return reason(BAD_REQUEST, "the path has an invalid escape, or one of a NUL character")
        try:
            found = await handlers["GET" if request.method == "HEAD" else request.method](service, request)
        except Elsewhere as e:
            return RedirectResponse(e.url, status_code=TEMPORARY_REDIRECT)
        except (Answered, InvalidPolicy) as e:
            return reason(e.status, e.text)
        except BkctlError as e:
            return reason(status_of(e), e.message)
        except ClientDisconnect:
            return reason(BAD_REQUEST, "the connection was closed before the request's end")
        except Exception:
            logger.exception("%s %s", request.method, request.url.path)
            return reason(500, "unexpected error; the broker's log has its stack trace")
        if isinstance(found, Response):
            return found
        return Response(status_code=204) if found is None else JSONResponse(found)

    return answer


def null() -> Response:
    """Returns status 200 with an empty body, for a policy that is not set."""
    return Response(status_code=200)


def reason(status: int, text: str) -> JSONResponse:
    """Returns an error response."""
    return JSONResponse({"reason": text}, status_code=status)


def refusing(text: str) -> Handler:
    """Return a handler that answers 405 with a reason."""

    async def refuse(service: MaintainedBroker, request: Request) -> Response:
        return reason(METHOD_NOT_ALLOWED, text)

    return refuse


async def body_of(request: Request, default: Any = None) -> Any:
    """Returns the JSON of a request; default for an empty body.

    Raises:
        Answered: it is not valid JSON (400), or too large (413).
    """
    data = await request.body()
    if len(data) > BODY_BYTES_MAX:
        raise Answered(TOO_LARGE, f"the body has {len(data)} bytes; the maximum is {BODY_BYTES_MAX}")
    if not data.strip():
        return default
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Answered(BAD_REQUEST, f"the body is not valid JSON: {e}") from None


async def object_of(request: Request) -> dict[str, Any]:
    """Returns the JSON object of a request, {} for an empty body. Raises: Answered, not an object (400)."""
    given = await body_of(request)
    if given is not None and not isinstance(given, dict):
        raise Answered(BAD_REQUEST, f"the body must be a JSON object, not {type(given).__name__}")
    return given or {}


async def texts_of(request: Request) -> dict[str, str]:
    """Returns the JSON object of texts of a request, as properties are. Raises: Answered, not valid (400)."""
    return texts(await object_of(request))


def texts(given: Any) -> dict[str, str]:
    """Returns an object of texts; numbers become texts, as in Java. Raises: Answered, not valid (400)."""
    if not isinstance(given, dict) or any(isinstance(value, dict | list) for value in given.values()):
        raise Answered(BAD_REQUEST, "properties must be a JSON object of texts")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}


def number(request: Request, name: str, default: int) -> int:
    """Returns a query parameter as a whole number. Raises: Answered, not a number (404, as Java)."""
    text = request.query_params.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise Answered(NOT_FOUND, f"{name}={text} is not a number") from None


def flag(request: Request, name: str, default: bool = False) -> bool:
    """Returns a boolean query parameter."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def check_name(what: str, name: str) -> None:
    """Raises Refused if the name of a new tenant or namespace is not valid."""
    if not NAMED_ENTITY.fullmatch(name):
        raise Refused(f"{what} name is not valid")


def namespace_of(request: Request) -> str:
    """Returns tenant/namespace of a path."""
    return f"{request.path_params['tenant']}/{request.path_params['namespace']}"


def topic_of(request: Request) -> TopicName:
    """Returns the topic of a path. Raises: UsageError, not a topic name."""
    p = request.path_params
    return TopicName.parse(f"{p.get('domain', 'persistent')}://{p['tenant']}/{p['namespace']}/{p['topic']}")


async def own(service: MaintainedBroker, request: Request, topic: TopicName) -> None:
    """Returns if this broker serves the topic; takes it over if it has no owner and is assigned to this broker.

    Raises:
        Elsewhere: another broker serves it. NotFound: the namespace does not exist. Unavailable: the owner is unknown.
        Refused: no broker may serve it.
    """
    ownership = service.backend.ownership
    try:
        found = await ownership.lookup(topic, authoritative=flag(request, "authoritative"))
    except NoBroker:
        raise Refused(f"Failed to find ownership for topic:{topic}") from None
    if not found.redirect and found.broker_url == ownership.address.native_url:
        return
    for broker_id in await ownership.brokers.brokers():
        report = await ownership.brokers.report(broker_id) or {}
        if report.get("pulsarServiceUrl") == found.broker_url and report.get("webServiceUrl"):
            raise Elsewhere(redirect_url(str(report["webServiceUrl"]), request, authoritative=found.authoritative))
    raise Unavailable(f"{topic} is served by {found.broker_url}, which is not registered")


async def on_partitions(service: MaintainedBroker, request: Request, handler: Handler) -> dict[TopicName, Any] | None:
    """Return the result of `handler` for each partition, here or at its owner; None if the topic is not partitioned.

    Raises:
        BkctlError: the error of the first partition that failed.
    """
    topic = topic_of(request)
    count = await service.backend.meta.topics.partitions(topic)
    if not count or topic.partition >= 0:
        return None
    body, several = await request.body(), asyncio.Semaphore(PARTITIONS_AT_A_TIME_MAX)

    async def one(part: TopicName) -> Any:
        async with several:
            return await _on_partition(service, request, handler, part, body)

    parts = [topic.partition_name(index) for index in range(count)]
    answers = await asyncio.gather(*(one(part) for part in parts), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return dict(zip(parts, answers, strict=True))


async def _on_partition(
    service: MaintainedBroker, request: Request, handler: Handler, part: TopicName, body: bytes
) -> Any:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    path = request.scope["raw_path"].decode().split("/")
    path[TOPIC_PLACE] = quote(part.local, safe="")
    scope = {
        **request.scope,
        "path_params": {**request.path_params, "topic": part.local},
        "raw_path": "/".join(path).encode(),
    }
    try:
        return await handler(service, Request(scope, receive))
    except Elsewhere as e:
        return await forward(service, request, request.method, e.url, body)


async def at_topic(
    service: MaintainedBroker,
    request: Request,
    handler: Handler,
    method: str,
    topic: TopicName,
    *tail: str,
    query: str = "",
    **params: str,
) -> Any:
    """Returns the result of a handler of …/topic/tail?query for a persistent topic, here or at its owner."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    parts = (topic.domain, topic.tenant, topic.namespace, topic.local)
    names = dict(zip(("domain", "tenant", "namespace", "topic"), parts, strict=True))
    path = "/".join((ADMIN, *(quote(part, safe="") for part in (*parts, *tail))))
    scope = {
        **request.scope,
        "method": method,
        "path_params": {**names, **params},
        "raw_path": path.encode(),
        "query_string": query.encode(),
    }
    try:
        return await handler(service, Request(scope, receive))
    except Elsewhere as e:
        return await forward(service, request, method, e.url)


def redirect_url(base: str, request: Request, *, authoritative: bool) -> str:
    """Returns the URL of the same request at another broker."""
    path = request.scope.get("raw_path", request.url.path.encode()).decode()
    query = request.query_params.multi_items()
    pairs = [(key, value) for key, value in query if key != "authoritative"] + [
        ("authoritative", str(authoritative).lower())
    ]
    return f"{base}{path}?{urlencode(pairs)}"
