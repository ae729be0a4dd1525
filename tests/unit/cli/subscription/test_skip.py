"""`subscription skip`: acknowledges the oldest entries of a backlog."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE
from tests.unit.cli.topic.live import Live


def test_the_oldest_entries_are_skipped_up_to_the_end(live: Live) -> None:
    topic = live.topic("skip", 3, 2, cursors=("s", "t"))
    second = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[1]
    (row,) = live.bkctl("subscription", "skip", topic, "s", 4, "--yes", "-o", "json").json()["items"]
    assert row == {
        "topic": topic, "subscription": "s", "backlog_before": 5, "backlog": 1, "mark_delete": f"{second}:0",
        "by": "metadata",
    }  # fmt: skip
    (row,) = live.bkctl("subscription", "skip", topic, "s", 99, "--yes", "-o", "json").json()["items"]
    assert (row["backlog_before"], row["backlog"]) == (1, 0)
    assert live.bkctl("subscription", "show", topic, "t", "-o", "json").json()["backlog"] == 5, "only one is moved"


def test_the_owner_skips_entries_of_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/skip", 3)
    assert served.bkctl("subscription", "create", topic, "s", "--at", "earliest", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    (row,) = served.bkctl("subscription", "skip", topic, "s", 2, "--yes", "-o", "json").json()["items"]
    assert (row["backlog_before"], row["by"]) == (3, broker)
    stats = served.bkctl("topic", "stats", topic, "-o", "json").json()["items"][0]
    assert stats["subscriptions"]["s"]["msg_backlog"] == 1


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_a_wrong_count_is_refused_before_connecting(count: str) -> None:
    answer = bkctl("-m", NOWHERE, "subscription", "skip", "--yes", "--", "t", "s", count)
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
