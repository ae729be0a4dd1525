"""Pulsar's REST interface as a client: what the owner of a topic is asked to do. Java's brokers and ours.

Requests follow redirects from broker to broker, as pulsar-admin does. Answers become the tree of errors: 404 not found,
409 conflict, 412 refused, 401 and 403 unauthorized, 503 and no answer unavailable, anything else the server's no.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from bkctl.errors import BkctlError, Conflict, NotFound, Refused, ServerError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from bkctl.cli.env import Env
    from bkctl.model.topic import TopicName

ADMIN: Final = "/admin/v2"
REDIRECTS_MAX: Final = 10
TOKEN: Final = "broker-token"
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
ANSWER_S_MAX: Final = 60.0
"""For one answer where the command may take for ever, as pulsar-admin waits."""
ANSWER_SHARE: Final = 0.75
"""Of the time for the whole command: a broker that does not answer is named then, before the time is over."""
REDIRECT: Final = 307


class Admin:
    """One broker's REST interface.

    Args:
        base_url: http://host:port.
        timeout_s: for one request.
        token: shown to the brokers, if any.
    """

    def __init__(self, base_url: str, timeout_s: float, token: str | None = None) -> None:
        self.base_url = base_url
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @classmethod
    def of(cls, env: Env, base_url: str | None) -> Admin:
        """With the command's own timeout, and the token of BKCTL_BROKER_TOKEN or the profile.

        Raises:
            Unavailable: the broker tells no web address.
        """
        if not base_url:
            raise Unavailable("the broker tells no web address in the metadata store")
        limit = env.timeout_s
        timeout_s = ANSWER_S_MAX if limit is None else limit * ANSWER_SHARE
        return cls(base_url, timeout_s, env.setting(TOKEN))

    async def get(self, path: str) -> Any:
        """The JSON, or text, of a GET below /admin/v2."""
        return await self.ask("GET", path)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of a request below /admin/v2: JSON, or text where it is none; None where it is empty.

        Raises:
            NotFound, Conflict, Refused, Unauthorized, Unavailable, ServerError: with the broker's own words.
        """
        return await _beside(partial(self._ask, method, self.base_url + ADMIN + path, body))

    def _ask(self, method: str, url: str, body: Any) -> Any:
        import urllib.error
        import urllib.request
        from http.client import HTTPException

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """Redirects are followed with their method and body, which the library does not."""

            def redirect_request(self, *_: object, **__: object) -> None:
                return None

        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(NoRedirect())
        for _ in range(REDIRECTS_MAX):
            request = urllib.request.Request(url, data=data, headers=self._headers, method=method)
            if data is not None or method in ("PUT", "POST"):
                request.add_header("Content-Type", "application/json")
            try:
                with opener.open(request, timeout=self._timeout_s) as answer:
                    return _decoded(answer.read(ANSWER_BYTES_MAX))
            except urllib.error.HTTPError as e:
                where = e.headers.get("Location")
                if e.code == REDIRECT and where:
                    url = where
                    continue
                raise _error(e.code, e.read(ANSWER_BYTES_MAX), url) from None
            except (OSError, ValueError, HTTPException) as e:
                why, hint = getattr(e, "reason", e), None
                if isinstance(why, TimeoutError):
                    why, hint = f"no answer in {self._timeout_s:g} s", "--timeout SECONDS waits longer"
                raise Unavailable(f"broker {url}: {why}", hint=hint, url=url) from None
        raise Unavailable(f"{self.base_url} leads from broker to broker without an end", url=url)


async def _beside(work: Callable[[], Any]) -> Any:
    """What blocking work returns, done in a thread that nobody has to wait for: ^C and time limits end the command."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(set_it: Callable[[Any], None], value: object) -> None:
        if not done.done():
            set_it(value)

    def run() -> None:
        try:
            told = partial(tell, done.set_result, work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            told = partial(tell, done.set_exception, error)
        with suppress(RuntimeError):  # the command has ended without it
            loop.call_soon_threadsafe(told)

    threading.Thread(target=run, name="pulsar admin", daemon=True).start()
    return await done


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except ValueError:
        return data.decode("utf-8", "replace")


def _error(status: int, data: bytes, url: str) -> BkctlError:
    """The broker's no."""
    found = _decoded(data)
    words = found.get("reason") if isinstance(found, dict) else found
    text = f"the broker says: {words or f'HTTP {status}'}"
    kinds: dict[int, type[BkctlError]] = {404: NotFound, 409: Conflict, 412: Refused, 503: Unavailable}
    if status in kinds:
        return kinds[status](text, status=status, url=url)
    if status in (401, 403):
        return Unauthorized(text, hint="BKCTL_BROKER_TOKEN is shown to brokers", status=status, url=url)
    return ServerError(text, status=status, url=url)


def topic_path(topic: TopicName, *more: str | int) -> str:
    """/persistent/tenant/namespace/topic/…, encoded."""
    parts = [topic.local, *map(str, more)]
    return f"/{topic.domain}/{topic.namespace_name}/" + "/".join(quote(part, safe="") for part in parts)
