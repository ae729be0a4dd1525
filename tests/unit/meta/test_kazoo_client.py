"""The configuration of kazoo: reconnection, bounded waits, quiet log."""

from __future__ import annotations

import logging
import socket

import pytest

from bkctl.meta import kazoo_client
from bkctl.meta.kazoo_client import RECONNECT_DELAY_S_MAX, new_client


def test_a_new_client_knows_all_hosts_and_reconnects_forever() -> None:
    client = new_client(["h1:2181", "[::1]:2182"], 30.0)
    assert client.hosts == [("h1", 2181), ("::1", 2182)]
    assert not client.connected
    assert client._session_timeout == 30_000
    retry = client._conn_retry
    assert (retry.max_tries, retry.max_delay) == (-1, RECONNECT_DELAY_S_MAX)


@pytest.mark.parametrize(
    ("level", "shown"), [(logging.WARNING, "INFO"), (logging.INFO, "INFO"), (logging.ERROR, "ERROR")]
)
def test_warnings_of_kazoo_are_logged_as_information(caplog: pytest.LogCaptureFixture, level: int, shown: str) -> None:
    client = new_client(["h:1"], 30.0)
    with caplog.at_level(logging.DEBUG, logger=kazoo_client.__name__):
        client.logger.log(level, "Connection dropped: %s", "why")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (shown, "Connection dropped: why")
    ]


def test_the_wait_for_the_rest_of_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_client, "ANSWER_TIMEOUT_S", 0.01)
    handler = new_client(["h:1"], 30.0).handler
    one, other = socket.socketpair()
    with one, other:
        assert handler.select([one], [], [], 600.0) == ([], [], [])
        other.sendall(b"x")
        assert handler.select([one], [], [], 600.0) == ([one], [], [])


def test_a_connection_attempt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_client, "ANSWER_TIMEOUT_S", 5.0)
    handler = new_client(["h:1"], 30.0).handler
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        handler.create_connection(server.getsockname(), timeout=600.0) as connection,
    ):
        assert 0 < connection.gettimeout() <= 5.0
