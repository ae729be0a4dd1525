"""What the verbs on topics share: names, positions, several topics, the form of subscriptions."""

from __future__ import annotations

import pytest

from bkctl.cli.topic._topics import parse_position, retention_of, shown, shown_if, topic_name
from bkctl.errors import Exit, UsageError
from bkctl.log.trimming import Retention
from bkctl.model.topic import Position
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, NOWHERE, empty_topics, java_cluster
from tests.unit.cli.topic.live import Live


def test_names_that_are_not_persistent_topics_are_refused() -> None:
    assert bkctl("topic", "show", "a/b", tree=java_cluster()).code == Exit.USAGE
    answer = bkctl("topic", "show", "non-persistent://a/b/c", "-o", "json", tree=java_cluster())
    assert answer.code == Exit.USAGE
    assert "is not persistent" in answer.error()["message"]


@pytest.mark.parametrize(
    "words",
    [
        "topic show persistent://t/c/n/x",
        "topic create persistent://t/c/n/x",
        "topic list t/c/n",
    ],
)
def test_names_of_pulsar_1_are_refused(words: str) -> None:
    answer = bkctl(*words.split(), "--yes", "-o", "json", tree=java_cluster())
    assert answer.code == Exit.USAGE
    assert "Pulsar 1" in answer.error()["message"]


READ = ("show", "stats", "ledgers", "map", "where", "read", "tail", "du", "why-kept", "why-unloadable", "policy get")
CHANGE = ("create", "delete", "truncate", "trim", "unload", "terminate")
WRONG = [
    *(f"topic {verb} a/b" for verb in (*READ, *CHANGE)),
    "topic policy set a/b ttl 3",
    "topic policy unset a/b ttl",
    *(f"subscription {verb} a/b" for verb in ("list", "backlog")),
    *(f"subscription {verb} a/b s" for verb in ("show", "create", "delete", "clear")),
    "subscription skip a/b s 1",
    "subscription reset a/b s --to earliest",
    *(f"cursor {words}" for words in ("list a/b", "show a/b s", "history a/b s", "set a/b s --mark-delete 1:1")),
]


@pytest.mark.parametrize("words", WRONG)
def test_each_verb_refuses_a_wrong_name_before_connecting(words: str) -> None:
    writes = words.split()[1] not in {*READ, "list", "backlog", "show", "history"} and " get " not in words
    answer = bkctl("-m", NOWHERE, *words.split(" "), *(["--yes"] if writes else []))
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
    assert "a/b" in answer.stderr


def test_a_short_name_is_in_the_default_namespace() -> None:
    assert str(topic_name("t")) == "persistent://public/default/t"
    assert str(topic_name("a/b/t")) == "persistent://a/b/t"


def test_positions_are_read_as_they_are_shown() -> None:
    assert parse_position("12:41") == Position(12, 41)
    assert parse_position("12") == Position(12, 0)
    assert parse_position("12:-1") == Position(12, -1)
    assert (shown(Position(12, -1)), shown_if(None)) == ("12:-1", None)
    for wrong in ("", "a:1", "1:b", "1:2:3"):
        with pytest.raises(UsageError, match="is not a valid position"):
            parse_position(wrong)


@pytest.mark.parametrize(
    ("minutes", "size_mb", "expected"),
    [(60, 1, Retention(3600, 1 << 20)), (-1, -1, Retention(-1, -1)), (0, 0, Retention(0, 0))],
)
def test_retention_is_in_seconds_and_bytes_and_minus_one_stays(minutes: int, size_mb: int, expected: Retention) -> None:
    policies = {"retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}}
    assert retention_of(policies) == expected
    assert retention_of({}) == retention_of({"retention_policies": None}) == Retention(0, 0)


@pytest.mark.parametrize("verb", ["truncate", "trim", "unload", "delete", "stats"])
def test_the_remaining_topics_are_processed_when_one_is_missing(verb: str) -> None:
    tree = empty_topics()
    names = ("new/ns/a", "new/ns/none", EMPTY[1], EMPTY[0])
    confirmed = ["--yes"] if verb != "stats" else []
    answer = bkctl("topic", verb, *names, *confirmed, "-o", "json", tree=tree)
    assert answer.code == Exit.FINDINGS, answer.stderr
    assert [row["topic"] for row in answer.json()["items"]] == list(EMPTY), "each once"
    assert ["new/ns/none" in warning for warning in answer.json()["warnings"]] == [True]
    alone = bkctl("topic", verb, "new/ns/none", *confirmed, tree=tree)
    assert (alone.code, alone.stdout) == (Exit.NOT_FOUND, "")


def test_a_subscription_has_the_fields_of_its_cursor(java: Live) -> None:
    rows = java.bkctl("subscription", "list", "golden/ns1/roll", "-o", "json").json()["items"]
    assert [(row["subscription"], row["mark_delete"], row["next"]) for row in rows] == [
        ("behind", "62:-1", "62:0"),
        ("holes", "62:39", "62:40"),
        ("mid", "63:20", "63:21"),
    ]
    assert [(row["cursor_ledger"], row["lost"]) for row in rows] == [(None, None), (65, None), (66, None)]
