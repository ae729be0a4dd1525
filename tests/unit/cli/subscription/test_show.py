"""`subscription show`: the state of subscriptions."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, ROLL, check_unknown_is_null, empty_topics, java_cluster
from tests.unit.cli.topic.live import Live


def test_a_subscription_has_the_numbers_of_java(java: Live) -> None:
    recorded = golden.rest("internal-stats-roll")["response"]["body"]["cursors"]["holes"]
    backlog = golden.rest("stats-roll")["response"]["body"]["subscriptions"]["holes"]["msgBacklog"]
    item = java.bkctl("subscription", "show", ROLL, "holes", "-o", "json").json()
    assert (item["topic"], item["subscription"], item["backlog"]) == (ROLL, "holes", backlog)
    assert (item["mark_delete"], item["cursor_ledger"]) == (recorded["markDeletePosition"], recorded["cursorLedger"])
    consumed = recorded["messagesConsumedCounter"]
    assert item["acked_above"] == consumed - 40, (
        "entries 0 to 39 of the first ledger are before the mark-delete position"
    )
    lines = java.bkctl("subscription", "show", ROLL, "holes").stdout.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines if " " in line)
    assert (fields["backlog"], fields["next"]) == (str(backlog), "62:40")


def test_several_subscriptions_are_shown_and_one_that_is_missing_is_a_warning() -> None:
    tree = empty_topics()
    for name in ("s", "t"):
        assert bkctl("subscription", "create", EMPTY[0], name, "--yes", tree=tree).code == Exit.OK
    shown = bkctl("subscription", "show", EMPTY[0], "s", "-", "none", "-o", "json", tree=tree, stdin=b"t\n")
    assert (shown.code, [row["subscription"] for row in shown.json()["items"]]) == (Exit.FINDINGS, ["s", "t"])
    assert len(shown.json()["warnings"]) == 1
    assert bkctl("subscription", "show", EMPTY[0], "s", "t", "-o", "name", tree=tree).stdout == "s\nt\n"


def test_a_subscription_or_topic_that_does_not_exist_prints_nothing_on_stdout() -> None:
    for topic in (ROLL, "golden/ns1/none"):
        answer = bkctl("subscription", "show", topic, "none", "-o", "json", tree=java_cluster())
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    check_unknown_is_null("subscription", "show", "holes")
