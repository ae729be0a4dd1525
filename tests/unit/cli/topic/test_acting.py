"""Actions on topics by their owner, or in the metadata; and where they begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from bkctl.cli.topic._acting import message_id, place, place_or_time
from bkctl.errors import Exit, UsageError
from bkctl.model.topic import EARLIEST, LATEST, Position
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.broker.registered import register
from tests.unit.cli.topic.golden_topics import EMPTY, disown, empty_topics
from tests.unit.cli.topic.live import Live


def test_a_place_is_a_word_or_a_position() -> None:
    assert (place("earliest"), place("latest"), place("3:4")) == (EARLIEST, LATEST, Position(3, 4))
    with pytest.raises(UsageError, match="is not a valid position"):
        place("2020-01-01T00:00:00Z")


def test_a_time_is_read_as_rfc_3339_or_milliseconds() -> None:
    assert place_or_time("2023-11-14T22:13:20Z") == place_or_time("1700000000000") == 1_700_000_000_000
    assert place_or_time("2023-11-14T23:13:20.500+01:00") == 1_700_000_000_500
    assert (place_or_time("latest"), place_or_time("3:4")) == (LATEST, Position(3, 4))
    with pytest.raises(UsageError, match="has no time zone") as caught:
        place_or_time("2023-11-14T22:13:20")
    assert caught.value.hint == "2023-11-14T22:13:20Z"
    with pytest.raises(UsageError, match="is not a valid position in a topic"):
        place_or_time("yesterday")


def test_a_position_has_the_form_of_the_rest_interface() -> None:
    assert message_id(Position(3, 4)) == {"ledgerId": 3, "entryId": 4, "partitionIndex": -1}


def test_the_plan_names_who_acts(live: Live, served: Live) -> None:
    unowned, loaded = live.topic("acting-plan", 1, cursors=("s",)), served.load("public/default/acting-plan", 1)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    expected = ((live, unowned, "without a broker, in the metadata"), (served, loaded, f"by broker {broker}"))
    for cluster, topic, by in expected:
        plan = cluster.bkctl("topic", "truncate", topic, "--dry-run", "-o", "json").json()["plan"]
        assert plan["steps"][0].endswith(f"; {by}")


def test_a_subscription_that_no_partition_has_is_not_found(live: Live) -> None:
    topic = live.topic("acting-none", 1)
    answer = live.bkctl("subscription", "clear", topic, "none", "--yes", "-o", "json")
    assert (answer.code, answer.stdout) == (Exit.NOT_FOUND, "")
    assert answer.error()["hint"] == f"bkctl subscription list {topic}"


class Recorder(BaseHTTPRequestHandler):
    """Answers who shows the token, and remembers what was asked."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(204 if self.headers["Authorization"] == "Bearer secret" else 401)
        self.end_headers()

    do_PUT = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_broker_that_keeps_owners_in_a_topic_is_asked_with_the_token(recorder: int) -> None:
    tree = empty_topics()
    register(
        tree, recorder, loadManagerClassName="org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    )
    refused = bkctl("topic", "trim", EMPTY[0], "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.error()["kind"]) == (Exit.SERVER, "unauthorized")
    known = {"BKCTL_BROKER_TOKEN": "secret"}
    trimmed = bkctl("topic", "trim", EMPTY[0], "--yes", "-o", "json", tree=tree, environ=known)
    assert trimmed.json()["items"][0]["by"] == f"127.0.0.1:{recorder}"
    assert Recorder.asked == ["/admin/v2/persistent/new/ns/a/trim"] * 2
    away = golden.memory_tree()  # with what bookies know of its subscriptions
    disown(away, "golden/ns1")
    register(
        away, recorder, loadManagerClassName="org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    )
    for verb, path in (("trim", "/trim"), ("delete", "?force=false")):
        answer = bkctl("topic", verb, "golden/ns1/roll", "--yes", "-o", "json", tree=away, environ=known)
        assert (answer.code, Recorder.asked[-1]) == (Exit.OK, f"/admin/v2/persistent/golden/ns1/roll{path}")
    unloaded = bkctl("namespace", "unload", "new/ns", "--yes", "-o", "json", tree=tree, environ=known)
    assert [row["unloaded"] for row in unloaded.json()["items"]] == [True] * 4
    where = bkctl("topic", "where", *EMPTY, "-o", "json", tree=tree)
    assert [row["owner"] for row in where.json()["items"]] == [None, None]
    assert ["unknown here" in warning for warning in where.json()["warnings"]] == [True]
