"""What every part of the REST interface shares: answers, errors, and sending a request to the broker that owns a topic.

A handler gets the service and the request and returns what becomes JSON, None for 204, or a Response of its own.
Errors are {"reason": …}: 404 absent, 409 there already, 412 a precondition, 503 come again. Source: AdminResource.java.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bkctl.errors import AlreadyExists, BkctlError, Conflict, NotFound, Refused, Unavailable, UsageError
from bkctl.model.topic import TopicName

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

ADMIN: Final = "/admin/v2"
BODY_BYTES_MAX: Final = 1024 * 1024

Handler = Callable[["BrokerService", Request], Awaitable[Any]]

logger = logging.getLogger(__name__)


class Elsewhere(Exception):
    """The topic is another broker's: ask there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _Domain(Convertor[str]):
    """persistent or non-persistent, in a path."""

    regex = "(?:non-)?persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())


def status_of(error: BkctlError) -> int:
    """The HTTP status that Java would answer with."""
    for kind, status in ((NotFound, 404), (AlreadyExists, 409), (Refused, 412), (UsageError, 412), (Conflict, 409)):
        if isinstance(error, kind):
            return status
    return 503 if isinstance(error, Unavailable) else 500


def routes(service: BrokerService, table: dict[tuple[str, str], Handler]) -> list[Route]:
    """Routes of a table of (method, path) → handler; a path may stand for several methods."""
    by_path: dict[str, dict[str, Handler]] = {}
    for (method, path), handler in table.items():
        by_path.setdefault(path, {})[method] = handler
    return [Route(path, _endpoint(service, one), methods=sorted(one)) for path, one in by_path.items()]


def _endpoint(service: BrokerService, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            found = await handlers["GET" if request.method == "HEAD" else request.method](service, request)
        except Elsewhere as e:
            return RedirectResponse(e.url, status_code=307)
        except BkctlError as e:
            return reason(status_of(e), e.message)
        except Exception:
            logger.exception("%s %s", request.method, request.url.path)
            return reason(500, "the broker has a bug here; its log tells more")
        if isinstance(found, Response):
            return found
        return Response(status_code=204) if found is None else JSONResponse(found)

    return answer


def reason(status: int, text: str) -> JSONResponse:
    """An error."""
    return JSONResponse({"reason": text}, status_code=status)


async def body_of(request: Request, default: Any = None) -> Any:
    """The JSON of a request; default where there is none.

    Raises:
        UsageError: it is no JSON, or too much of it.
    """
    data = await request.body()
    if len(data) > BODY_BYTES_MAX:
        raise UsageError(f"a body of {len(data)} bytes; at most {BODY_BYTES_MAX} are read")
    if not data.strip():
        return default
    try:
        return json.loads(data)
    except ValueError as e:
        raise UsageError(f"the body is no JSON: {e}") from None


def flag(request: Request, name: str, default: bool = False) -> bool:
    """A query parameter that is true or false."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def namespace_of(request: Request) -> str:
    """tenant/namespace of a path."""
    return f"{request.path_params['tenant']}/{request.path_params['namespace']}"


def topic_of(request: Request) -> TopicName:
    """The topic of a path. Raises: UsageError, it is none."""
    p = request.path_params
    return TopicName.parse(f"{p.get('domain', 'persistent')}://{p['tenant']}/{p['namespace']}/{p['topic']}")


async def own(service: BrokerService, request: Request, topic: TopicName) -> None:
    """Returns if this broker serves the topic, having taken it over if it is its turn.

    Raises:
        Elsewhere: another broker does. NotFound: no such namespace. Unavailable: nobody can tell now.
    """
    ownership = service.backend.ownership
    found = await ownership.lookup(topic, authoritative=flag(request, "authoritative"))
    if not found.redirect and found.broker_url == ownership.address.native_url:
        return
    for broker_id in await ownership.brokers.brokers():
        report = await ownership.brokers.report(broker_id) or {}
        if report.get("pulsarServiceUrl") == found.broker_url and report.get("webServiceUrl"):
            raise Elsewhere(redirect_url(str(report["webServiceUrl"]), request, authoritative=found.authoritative))
    raise Unavailable(f"{topic} is served by {found.broker_url}, which is not registered")


def redirect_url(base: str, request: Request, *, authoritative: bool) -> str:
    """The same request at another broker."""
    path = request.scope.get("raw_path", request.url.path.encode()).decode()
    query = request.query_params.multi_items()
    pairs = [(key, value) for key, value in query if key != "authoritative"] + [
        ("authoritative", str(authoritative).lower())
    ]
    from urllib.parse import urlencode

    return f"{base}{path}?{urlencode(pairs)}"
