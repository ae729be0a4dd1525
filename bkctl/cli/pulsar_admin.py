"""A client of Pulsar's REST interface, for brokers of Java and bkctl.

Requests follow redirects from broker to broker, as pulsar-admin does, over http and https only. The token is sent to
one origin (scheme, host and port), that of the broker which the metadata store names, and to those of
BKCTL_BROKER_TOKEN_ORIGINS where it is set; a redirect to another origin is followed without it.

Answers become the tree of errors: 404 not found, 409 conflict, 412 refused, 401 and 403 unauthorized, 503 and no answer
unavailable, any other status a server error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin

from bkctl.errors import BkctlError, Conflict, NotFound, Refused, ServerError, Unauthorized, Unavailable, UsageError
from bkctl.model.origin import origin, origins

if TYPE_CHECKING:
    from bkctl.cli.env import Env
    from bkctl.model.topic import TopicName

ADMIN: Final = "/admin/v2"
REDIRECTS_MAX: Final = 10
TOKEN: Final = "broker-token"
TOKEN_ORIGINS: Final = "broker-token-origins"
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
ANSWER_S_MAX: Final = 60.0
"""For one answer if the command has no time limit, as in pulsar-admin."""
ANSWER_SHARE: Final = 0.75
"""Share of the command's timeout, so that the error names the broker that does not answer."""
REDIRECT: Final = 307
SUCCESS: Final = 2
"""The first digit of a status."""
UNAUTHORIZED: Final = (401, 403)


class Admin:
    """One broker's REST interface.

    Args:
        base_url: http://host:port.
        timeout_s: for one request.
        token: sent to the brokers, if any.
        token_origins: the only origins that get the token; None for that of base_url.
    """

    def __init__(
        self, base_url: str, timeout_s: float, token: str | None = None, token_origins: Collection[str] | None = None
    ) -> None:
        self.base_url = base_url
        self._timeout_s = timeout_s
        self._token = token
        self._token_origins = origins([base_url]) if token_origins is None else token_origins

    @classmethod
    def of(cls, env: Env, base_url: str | None) -> Admin:
        """With the command's own timeout, and the token of BKCTL_BROKER_TOKEN or the profile.

        Raises:
            Unavailable: the broker has registered no web address. UsageError: the token, or an origin of
                BKCTL_BROKER_TOKEN_ORIGINS, is not valid.
        """
        if not base_url:
            raise Unavailable("the broker has registered no web address in the metadata store")
        limit = env.timeout_s
        timeout_s = ANSWER_S_MAX if limit is None else limit * ANSWER_SHARE
        token = (env.setting(TOKEN) or "").strip()
        if not token.isascii() or not token.isprintable():  # An error of the library would show the token.
            raise UsageError("BKCTL_BROKER_TOKEN holds a character that an HTTP header cannot have")
        return cls(base_url, timeout_s, token or None, _token_origins(env.setting(TOKEN_ORIGINS)))

    async def get(self, path: str) -> Any:
        """The JSON, or text, of a GET below /admin/v2."""
        return await self.ask("GET", path)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of a request below /admin/v2: parsed JSON, else text; None if it is empty.

        Raises:
            NotFound, Conflict, Refused, Unauthorized, Unavailable, ServerError: with the broker's own words.
        """
        return await _beside(partial(self._ask, method, self.base_url + ADMIN + path, body))

    def _ask(self, method: str, url: str, body: Any) -> Any:
        from bkctl.client.http import send

        if origin(url) is None:
            raise Refused(f"the web address of the broker is not an http or https address: {self.base_url}", url=url)
        data = None if body is None else json.dumps(body).encode()
        for _ in range(REDIRECTS_MAX):
            headers = self._headers(url)
            if data is not None or method in ("PUT", "POST"):
                headers["Content-Type"] = "application/json"
            try:
                response = send(method, url, data, headers, timeout_s=self._timeout_s, body_bytes_max=ANSWER_BYTES_MAX)
            except Unavailable as e:
                late = isinstance(e.__cause__, TimeoutError)
                hint = "--timeout SECONDS waits longer" if late else None
                raise Unavailable(f"broker {e.message}", hint=hint, url=url) from None
            if response.status == REDIRECT and response.location:
                url = self._redirected(url, response.location)
            elif response.status // 100 == SUCCESS:
                return _decoded(response.body)
            else:
                raise _error(response.status, response.body, url, self._token_hint(url))
        raise Unavailable(f"{self.base_url} redirects from broker to broker in a loop", url=url)

    def _headers(self, url: str) -> dict[str, str]:
        shown = self._token is not None and origin(url) in self._token_origins
        return {"Authorization": f"Bearer {self._token}"} if shown else {}

    def _redirected(self, url: str, where: str) -> str:
        """The address of a redirect. Raises: Refused, it is not http or https."""
        target = urljoin(url, where)
        if origin(target) is None:
            raise Refused(f"broker {url} redirects to {where}, which is not an http or https address", url=target)
        return target

    def _token_hint(self, url: str) -> str:
        """The hint for a broker that requires authentication."""
        if self._token is None:
            return "set BKCTL_BROKER_TOKEN to send a token to the broker"
        own, asked = origin(self.base_url), origin(url)
        if asked in self._token_origins:
            return f"the token of BKCTL_BROKER_TOKEN was sent to {asked}"
        redirected = "" if asked == own else f"{own} redirected to {asked}; "
        known = ",".join(sorted({*self._token_origins, str(asked)}))
        return f"{redirected}the token was not sent there; BKCTL_BROKER_TOKEN_ORIGINS={known} sends it there too"


def _token_origins(text: str | None) -> frozenset[str] | None:
    """The origins of a comma-separated list; None if it is empty. Raises: UsageError, one is not valid."""
    if text is None:
        return None
    found = set()
    for url in filter(None, re.split(r"[,\s]+", text)):
        known = origin(url)
        if known is None:
            raise UsageError(
                f"BKCTL_BROKER_TOKEN_ORIGINS: {url!r} is not an origin", hint="http://HOST:PORT,https://HOST:PORT"
            )
        found.add(known)
    return frozenset(found)


async def _beside(work: Callable[[], Any]) -> Any:
    """Runs blocking work in a daemon thread, so that ^C and time limits end the command."""
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
        with suppress(RuntimeError):  # The command has ended meanwhile.
            loop.call_soon_threadsafe(told)

    threading.Thread(target=run, name="pulsar admin", daemon=True).start()
    return await done


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except ValueError:
        return data.decode("utf-8", "replace")


def _error(status: int, data: bytes, url: str, hint: str) -> BkctlError:
    """Converts an error reply of the broker."""
    found = _decoded(data)
    words = found.get("reason") if isinstance(found, dict) else found
    text = f"the broker replied: {words or f'HTTP {status}'}"
    kinds: dict[int, type[BkctlError]] = {404: NotFound, 409: Conflict, 412: Refused, 503: Unavailable}
    if status in kinds:
        return kinds[status](text, status=status, url=url)
    if status in UNAUTHORIZED:
        return Unauthorized(text, hint=hint, status=status, url=url)
    return ServerError(text, status=status, url=url)


def topic_path(topic: TopicName, *more: str | int) -> str:
    """/persistent/tenant/namespace/topic/…, encoded."""
    parts = [topic.local, *map(str, more)]
    return f"/{topic.domain}/{topic.namespace_name}/" + "/".join(quote(part, safe="") for part in parts)
