"""`subscription reset`: moves a subscription to a position or a time."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE
from tests.unit.cli.topic.live import PUBLISHED_MS, Live


@pytest.fixture(scope="module")
def topic(live: Live) -> str:
    return live.topic("reset", 3, 2, cursors=("s",))


@pytest.mark.parametrize(
    ("to", "backlog"),
    [
        ("latest", 0),
        ("earliest", 5),
        (str(PUBLISHED_MS + 3000), 2),
        (str(PUBLISHED_MS + 3001), 1),
        ("2023-11-14T22:13:20Z", 5),
        ("2100-01-01T00:00:00+02:00", 0),
        ("FIRST:1", 4),
    ],
)
def test_a_subscription_continues_at_the_position_or_with_the_first_entry_of_the_time(
    live: Live, topic: str, to: str, backlog: int
) -> None:
    first = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[0]
    done = live.bkctl("subscription", "reset", topic, "s", "--to", to.replace("FIRST", first), "--yes", "-o", "json")
    assert done.code == Exit.OK, done.stderr
    (row,) = done.json()["items"]
    assert (row["backlog"], row["by"]) == (backlog, "metadata")
    assert live.bkctl("subscription", "show", topic, "s", "-o", "json").json()["backlog"] == backlog


@pytest.mark.parametrize("to", ["earliest", str(PUBLISHED_MS + 1000)])
def test_the_owner_moves_a_subscription_of_a_loaded_topic(served: Live, to: str) -> None:
    topic = served.load("public/default/reset")
    stats = served.bkctl("topic", "stats", topic, "-o", "json").json()["items"][0]
    if not stats["subscriptions"]:
        served.load(topic, 3)
        assert served.bkctl("subscription", "create", topic, "s", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    (row,) = served.bkctl("subscription", "reset", topic, "s", "--to", to, "--yes", "-o", "json").json()["items"]
    assert (row["backlog"], row["by"]) == (3 if to == "earliest" else 2, broker)


@pytest.mark.parametrize("to", ["yesterday", "2020-01-01", "x:1"])
def test_a_wrong_position_is_refused_before_connecting(to: str) -> None:
    answer = bkctl("-m", NOWHERE, "subscription", "reset", "t", "s", "--to", to, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
