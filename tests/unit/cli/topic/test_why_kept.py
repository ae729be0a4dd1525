"""`topic why-kept`: the reason why each ledger of a topic is kept."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, delete_nodes, java_cluster
from tests.unit.cli.topic.live import Live


def test_a_ledger_is_kept_by_the_slowest_subscription_until_it_is_consumed(live: Live) -> None:
    topic = live.topic("why-kept", 5, 3, 2, cursors=("slow",))
    rows = live.bkctl("topic", "why-kept", topic, "-o", "json").json()["items"]
    assert [(row["entries"], row["kept"], row["subscription"]) for row in rows] == [
        (5, "subscription slow has 10 entries after its mark-delete position", "slow"),
        (3, "subscription slow has 10 entries after its mark-delete position", "slow"),
        (2, "it is the last one", None),
    ]
    assert live.bkctl("subscription", "skip", topic, "slow", 6, "--yes").code == Exit.OK
    rows = live.bkctl("topic", "why-kept", topic, "-o", "json").json()["items"]
    assert [(row["kept"], row["subscription"]) for row in rows] == [
        (None, None),
        ("subscription slow has 4 entries after its mark-delete position", "slow"),
        ("it is the last one", None),
    ]
    head = live.bkctl("topic", "why-kept", topic).stdout.splitlines()[0]
    assert {"ledger_id", "kept"} <= set(head.split())


def test_retention_keeps_consumed_ledgers(live: Live) -> None:
    assert live.bkctl("namespace", "create", "public/kept", "--yes").code == Exit.OK
    value = '{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
    assert live.bkctl("namespace", "policy", "set", "public/kept", "retention", value, "--yes").code == Exit.OK
    topic = live.topic("public/kept/t", 2, 2)
    rows = live.bkctl("topic", "why-kept", topic, "-o", "json").json()["items"]
    assert [row["kept"] for row in rows] == ["retention is for ever", "it is the last one"]


def test_reasons_that_need_no_bookie_are_shown_while_bookies_are_away() -> None:
    answer = bkctl("topic", "why-kept", ROLL, "-o", "json", tree=java_cluster())
    assert answer.code == Exit.OK, answer.stderr
    rows = answer.json()["items"]
    assert [(row["ledger_id"], row["entries"]) for row in rows] == [(62, 50), (63, 50), (64, None)]
    behind = "subscription behind has not consumed it"
    assert [(row["kept"], row["subscription"]) for row in rows] == [
        (behind, "behind"),
        (behind, "behind"),
        ("it is open", None),
    ]
    assert len(answer.json()["warnings"]) == 2
    tree = golden.memory_tree()
    delete_nodes(tree, "/managed-ledgers/golden/ns1/persistent/roll/behind")
    rows = bkctl("topic", "why-kept", ROLL, "-o", "json", tree=tree).json()["items"]
    unknown = "unknown whether subscription holes has consumed it"
    assert [(row["kept"], row["subscription"]) for row in rows[:2]] == [(unknown, "holes")] * 2


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    names = f"{ROLL}\n{MOVED}\n".encode()
    several = bkctl("topic", "why-kept", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=names)
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "why-kept", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
