"""Verbs that are given several names do what they can, and say what they could not; brokers that do not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.broker.registered import register

EMPTY = ("persistent://new/ns/a", "persistent://new/ns/b")


def empty_topics() -> MemoryTree:
    tree = golden.memory_tree()
    assert bkctl("tenant", "create", "new", "--yes", tree=tree).code == Exit.OK
    assert bkctl("namespace", "create", "new/ns", "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "create", *EMPTY, "--yes", tree=tree).code == Exit.OK
    return tree


@pytest.mark.parametrize("verb", ["truncate", "trim", "unload", "delete", "stats"])
def test_a_topic_that_is_missing_does_not_keep_the_others_from_their_turn(verb: str) -> None:
    tree = empty_topics()
    names = ("new/ns/a", "new/ns/none", EMPTY[1], EMPTY[0])
    answer = bkctl("topic", verb, *names, *(["--yes"] if verb != "stats" else []), "-o", "json", tree=tree)
    assert answer.code == Exit.FINDINGS, answer.stderr
    assert [row["topic"] for row in answer.json()["items"]] == list(EMPTY), "each once"
    assert ["new/ns/none" in warning for warning in answer.json()["warnings"]] == [True]
    assert bkctl("topic", verb, "new/ns/none", "--yes", tree=tree).code == Exit.NOT_FOUND


def test_a_topic_that_nobody_serves_cannot_be_terminated_and_nothing_is_asked() -> None:
    tree = empty_topics()
    answer = bkctl("topic", "terminate", EMPTY[0], "-o", "json", tree=tree)
    assert (answer.code, answer.error()["kind"]) == (Exit.UNAVAILABLE, "unavailable")
    answer = bkctl("topic", "terminate", *EMPTY, "-o", "json", tree=tree)
    assert (answer.code, len(answer.json()["warnings"])) == (Exit.FINDINGS, 2)


def test_subscriptions_are_shown_and_deleted_several_at_once() -> None:
    tree = empty_topics()
    for name in ("s", "t"):
        assert bkctl("subscription", "create", EMPTY[0], name, "--yes", tree=tree).code == Exit.OK
    shown = bkctl("subscription", "show", EMPTY[0], "s", "-", "none", "-o", "json", tree=tree, stdin=b"t\n")
    assert (shown.code, [row["subscription"] for row in shown.json()["items"]]) == (Exit.FINDINGS, ["s", "t"])
    gone = bkctl("subscription", "delete", EMPTY[0], "none", "t", "s", "--yes", "-o", "json", tree=tree)
    assert (gone.code, [row["subscription"] for row in gone.json()["items"]]) == (Exit.FINDINGS, ["t", "s"])
    assert bkctl("subscription", "list", EMPTY[0], "-o", "json", tree=tree).json()["items"] == []
    assert bkctl("subscription", "delete", EMPTY[0], "s", "--yes", tree=tree).code == Exit.NOT_FOUND


HOSTILE = ["x\ndecoy", "\x1b[31mred", "\x9b", "\x7f", " lead", "back\\slash", "a\\nb", "a\tb\r"]


def test_a_list_of_topics_names_to_other_commands_what_it_lists_and_nothing_else() -> None:
    tree = empty_topics()
    names = [f"persistent://new/ns/{name}" for name in HOSTILE]
    decoys = ["persistent://public/default/decoy", "persistent://new/ns/x", "persistent://new/ns/a\nb"]
    assert bkctl("topic", "create", *names, *decoys, "--yes", tree=tree).code == Exit.OK
    listed = bkctl("topic", "list", "new/ns", "-o", "name", tree=tree).stdout.split("\n")
    assert len(listed) == len(names) + 4 + 1, "a line each: two decoys, two others, and the end"
    chosen = [line for line in listed if line not in (*EMPTY, "persistent://new/ns/x", "persistent://new/ns/a\\nb", "")]
    gone = bkctl("topic", "delete", "-", "--yes", "-o", "json", tree=tree, stdin="\n".join(chosen).encode())
    assert gone.code == Exit.OK, gone.stderr
    assert sorted(row["topic"] for row in gone.json()["items"]) == sorted(names)
    left = bkctl("topic", "list", "-o", "json", tree=tree).json()["items"]
    assert {*decoys, *EMPTY} <= {row["topic"] for row in left}


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


def test_where_owners_are_kept_in_a_topic_a_broker_is_asked_with_the_token(recorder: int) -> None:
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
    owned = "/namespace/golden/ns1"
    for bundle in asyncio.run(MemoryStore(away).children(owned)):
        asyncio.run(MemoryStore(away).delete_any(f"{owned}/{bundle}"))
    register(
        away, recorder, loadManagerClassName="org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    )
    for verb, path in (("trim", "/trim"), ("delete", "?force=false")):
        told = bkctl("topic", verb, "golden/ns1/roll", "--yes", "-o", "json", tree=away, environ=known)
        assert (told.code, Recorder.asked[-1]) == (Exit.OK, f"/admin/v2/persistent/golden/ns1/roll{path}")
    unloaded = bkctl("namespace", "unload", "new/ns", "--yes", "-o", "json", tree=tree, environ=known)
    assert [row["unloaded"] for row in unloaded.json()["items"]] == [True] * 4
    where = bkctl("topic", "where", *EMPTY, "-o", "json", tree=tree)
    assert [row["owner"] for row in where.json()["items"]] == [None, None]
    assert ["unknown here" in warning for warning in where.json()["warnings"]] == [True]
