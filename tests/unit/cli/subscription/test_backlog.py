"""`subscription backlog`: backlogs, and the publish time of their oldest entries."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.unit.cli.topic.golden_topics import ROLL, check_unknown_is_null
from tests.unit.cli.topic.live import PUBLISHED_MS, Live


def test_backlogs_are_those_of_java_and_the_size_of_whole_ledgers_is_exact(java: Live) -> None:
    recorded = golden.rest("stats-roll")["response"]["body"]["subscriptions"]
    rows = {r["subscription"]: r for r in java.bkctl("subscription", "backlog", ROLL, "-o", "json").json()["items"]}
    assert {name: row["backlog"] for name, row in rows.items()} == {k: one["msgBacklog"] for k, one in recorded.items()}
    assert (rows["behind"]["size"], rows["behind"]["ledgers"]) == (recorded["behind"]["backlogSize"], 3)
    assert (rows["mid"]["oldest"], rows["mid"]["ledgers"]) == ("63:21", 2)


def test_the_oldest_entry_has_its_publish_time_and_an_empty_backlog_none(live: Live) -> None:
    topic = live.topic("backlog", 3, 2, cursors=("s", "done"))
    assert live.bkctl("subscription", "skip", topic, "s", 4, "--yes").code == Exit.OK
    assert live.bkctl("subscription", "clear", topic, "done", "--yes").code == Exit.OK
    rows = {r["subscription"]: r for r in live.bkctl("subscription", "backlog", topic, "-o", "json").json()["items"]}
    second = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[1]
    assert (rows["s"]["backlog"], rows["s"]["oldest"], rows["s"]["ledgers"]) == (1, f"{second}:1", 1)
    assert rows["s"]["oldest_publish_time_ms"] == PUBLISHED_MS + 4000
    assert {name: rows["done"][name] for name in ("backlog", "size", "ledgers", "oldest", "oldest_publish_time")} == {
        "backlog": 0, "size": 0, "ledgers": 0, "oldest": None, "oldest_publish_time": None,
    }  # fmt: skip
    head = live.bkctl("subscription", "backlog", topic).stdout.splitlines()[0]
    assert head.split()[:4] == ["topic", "subscription", "backlog", "size"]
    assert live.bkctl("subscription", "backlog", topic, "-o", "name").stdout == "done\ns\n"


def test_an_oldest_entry_that_cannot_be_read_is_a_warning(live: Live) -> None:
    topic = live.topic("backlog-lost", 3, 2, cursors=("s",))
    first = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[0]
    assert live.bkctl("ledger", "delete", first, "--owned", "--no-backup", "--yes").code == Exit.OK
    answer = live.bkctl("subscription", "backlog", topic, "-o", "json")
    assert answer.code == Exit.OK, answer.stderr
    assert [row["oldest_publish_time"] for row in answer.json()["items"]] == [None]
    assert any("the oldest entry of s cannot be read" in warning for warning in answer.json()["warnings"])


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    check_unknown_is_null("subscription", "backlog")
