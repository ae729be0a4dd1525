"""The configuration of kazoo: bounded connection attempts, unlimited reconnection, less logging."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

ANSWER_TIMEOUT_S: Final = 3.0  # to connect to one host, and between two pieces of one answer
RECONNECT_DELAY_S: Final = 0.1
RECONNECT_DELAY_S_MAX: Final = 2.0
RECONNECT_BACKOFF: Final = 1.5

_log = logging.getLogger(__name__)


def new_client(hosts: Sequence[str], session_timeout_s: float) -> KazooClient:
    """Returns a client that is not started yet; it reconnects until it is stopped."""
    handler = _Handler()
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_DELAY_S,
        backoff=RECONNECT_BACKOFF,
        max_delay=RECONNECT_DELAY_S_MAX,
        sleep_func=handler.sleep_func,
    )
    return KazooClient(
        hosts=",".join(hosts),
        timeout=session_timeout_s,
        handler=handler,
        connection_retry=retry,
        logger=_CalmLog(_log, {}),
    )


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with bounds on the time one connection attempt takes.

    kazoo would wait for a server's first answer as long as a session lives, and lose the session by that: a ZooKeeper
    that is just starting can take a connection and forget it.
    """

    def create_connection(self, *args: object, **kwargs: object) -> object:
        return super().create_connection(*args, **{**kwargs, "timeout": _bound(kwargs.get("timeout"))})

    def select(self, *args: object, **kwargs: object) -> object:
        match args:
            case ([_], [], [], timeout_s):  # waits for the rest of an answer; the idle loop waits for two sockets
                return super().select(args[0], [], [], _bound(timeout_s))
        return super().select(*args, **kwargs)


def _bound(timeout_s: object) -> float:
    return min(timeout_s, ANSWER_TIMEOUT_S) if isinstance(timeout_s, float | int) else ANSWER_TIMEOUT_S


class _CalmLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns at every attempt to connect; callers are notified once, by an error or a session event."""

    def log(self, level: int, msg: object, *args: object, **kwargs: object) -> None:
        calm = min(level, logging.INFO) if level <= logging.WARNING else level
        if self.isEnabledFor(calm):
            self.logger.log(calm, msg, *args, exc_info=bool(kwargs.get("exc_info")))
