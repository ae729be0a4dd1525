"""What skip, clear and reset share: the plan, several partitions, refusals."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests.unit.cli.topic.live import Live

MOVES = [("skip", 2), ("clear",), ("reset", "--to", "latest")]


def command(words: tuple[str | int, ...], topic: str, *more: str) -> tuple[str | int, ...]:
    verb, *rest = words
    return ("subscription", verb, topic, "s", *rest, *more)


@pytest.mark.parametrize("words", MOVES)
def test_a_plan_names_the_backlog_and_nothing_is_moved_without_confirmation(
    live: Live, words: tuple[str | int, ...]
) -> None:
    topic = live.topic(f"moving-{words[0]}", 3, cursors=("s",))
    refused = live.bkctl(*command(words, topic))
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl(*command(words, topic, "--dry-run", "-o", "json")).json()["plan"]
    assert plan["subject"] == "s"
    assert "3" in plan["steps"][0]
    assert plan["steps"][0].endswith("; without a broker, in the metadata")
    assert live.bkctl("subscription", "show", topic, "s", "-o", "json").json()["backlog"] == 3


@pytest.mark.parametrize("words", MOVES)
def test_a_subscription_that_does_not_exist_is_not_found(live: Live, words: tuple[str | int, ...]) -> None:
    topic = live.topic(f"moving-none-{words[0]}", 1, cursors=("other",))
    answer = live.bkctl(*command(words, topic, "--yes", "-o", "json"))
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


def test_a_subscription_is_moved_on_every_partition_that_has_it(live: Live) -> None:
    assert live.bkctl("topic", "create", "moving-parts", "--partitions", 3, "--yes").code == Exit.OK
    for part in (0, 2):
        live.topic(f"moving-parts-partition-{part}", 2, cursors=("s",))
    done = live.bkctl("subscription", "clear", "moving-parts", "s", "--yes", "-o", "json").json()["items"]
    assert [(row["topic"][-1], row["backlog_before"], row["backlog"]) for row in done] == [("0", 2, 0), ("2", 2, 0)]
    head = live.bkctl("subscription", "clear", "moving-parts", "s", "--yes").stdout.splitlines()[0]
    assert head.split() == ["topic", "subscription", "backlog_before", "backlog", "mark_delete", "by"]


def test_the_owner_clears_the_backlog_of_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/clear", 3)
    assert served.bkctl("subscription", "create", topic, "s", "--at", "earliest", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    (row,) = served.bkctl("subscription", "clear", topic, "s", "--yes", "-o", "json").json()["items"]
    assert (row["backlog_before"], row["backlog"], row["by"]) == (3, 0, broker)
