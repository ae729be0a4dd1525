"""Topics, namespaces, tenants and brokers of a Java cluster, from its metadata alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

import pytest

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar import Stores
from tests import pulsar_golden as golden
from tests.command_line import bkctl


@cache
def java_cluster() -> MemoryTree:
    return golden.memory_tree()


def test_topics_are_listed_whole_or_by_partition() -> None:
    listed = bkctl("topic", "list", "golden/ns1", "-o", "json", tree=java_cluster())
    assert listed.stderr.count("warning: ") == 1, "one for all whose bookies are away"
    rows = listed.json()["items"]
    by_name = {row["topic"]: row for row in rows}
    assert by_name["persistent://golden/ns1/parts"]["partitions"] == 3
    assert "persistent://golden/ns1/parts-partition-0" not in by_name
    assert by_name["persistent://golden/ns1/roll"]["ledgers"] == 3
    roll = by_name["persistent://golden/ns1/roll"]
    assert (roll["entries"], roll["closed_entries"]) == (None, 100), "the third ledger is open, its bookies are away"
    lines = bkctl("topic", "list", "golden/ns1", "--no-bookies", tree=java_cluster()).stdout.splitlines()
    assert "≥ 100" in next(line for line in lines if line.startswith("persistent://golden/ns1/roll"))
    assert by_name["persistent://golden/ns1/moved"]["terminated"] is True
    names = bkctl("topic", "list", "--partitions", "-o", "name", tree=java_cluster()).stdout.splitlines()
    assert {"persistent://golden/ns1/parts-partition-2", "persistent://golden/ns1/spécial name"} <= set(names)
    assert "persistent://public/default/bad name" in names
    assert bkctl("topic", "list", "golden/none", tree=java_cluster()).code == Exit.NOT_FOUND


def test_names_that_are_no_topics() -> None:
    assert bkctl("topic", "show", "none", tree=java_cluster()).code == Exit.NOT_FOUND
    assert bkctl("topic", "show", "a/b", tree=java_cluster()).code == Exit.USAGE
    answer = bkctl("topic", "show", "non-persistent://a/b/c", "-o", "json", tree=java_cluster())
    assert answer.code == Exit.USAGE
    assert "is not persistent" in answer.error()["message"]
    assert bkctl("topic", "read", "x", "--count", "0", tree=java_cluster()).code == Exit.USAGE


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


NOWHERE = "zk://127.0.0.1:1/ledgers"
WRONG = [
    *(f"topic {verb} a/b" for verb in ("show", "stats", "ledgers", "map", "where", "read", "du", "why-kept", "create")),
    *(f"topic {verb} a/b" for verb in ("delete", "truncate", "trim", "unload", "terminate")),
    *(f"subscription {verb} a/b" for verb in ("list", "backlog")),
    *(f"subscription {verb} a/b s" for verb in ("show", "create", "delete", "clear")),
    "subscription skip a/b s 1",
    "subscription skip t s 0",
    "subscription reset a/b s --to earliest",
    "subscription reset t s --to yesterday",
    "subscription create t s --at 2020-01-01T00:00:00Z",
    *(f"cursor {words}" for words in ("list a/b", "show a/b s", "history a/b s", "set a/b s --mark-delete 1:1")),
    "cursor set t s",
    "topic list a//b",
]


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_on_the_command_line_is_told_before_connecting(words: str) -> None:
    assert bkctl("-m", NOWHERE, *words.split(" "), "--yes").code == Exit.USAGE


MOVED, ROLL = "persistent://golden/ns1/moved", "persistent://golden/ns1/roll"


@pytest.mark.parametrize(("noun", "verb"), [("topic", "ledgers"), ("topic", "map"), ("topic", "where")])
def test_of_several_topics_one_that_is_missing_is_a_warning_and_bookies_may_be_away(noun: str, verb: str) -> None:
    several = bkctl(
        noun, verb, "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=f"{ROLL}\n{MOVED}\n".encode()
    )
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    assert bkctl(noun, verb, "golden/ns1/none", tree=java_cluster()).code == Exit.NOT_FOUND


def test_what_bookies_that_are_away_would_tell_is_null() -> None:
    rows = bkctl("topic", "map", ROLL, "-o", "json", tree=java_cluster())
    assert [row["entries"] is None for row in rows.json()["items"]] == [False, False, True], rows.stdout
    assert ["unknown" in warning for warning in rows.json()["warnings"]] == [True, True]
    data = bkctl("topic", "ledgers", ROLL, "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["entries"] for row in data if row["kind"] == "data"] == [50, 50, None]
    shown = bkctl("topic", "show", ROLL, "-o", "json", tree=java_cluster()).json()
    unknown = {"entries", "size", "last_confirmed", "backlog"}
    assert {name for name in unknown if shown[name] is not None} == set()
    assert (shown["ledgers"], shown["subscriptions"], shown["owner"]) == (3, 3, "pulsar://127.0.0.1:26750")
    used = bkctl("topic", "du", ROLL, "-o", "json", tree=java_cluster()).json()["items"][0]
    assert (used["entries"], used["backlog_size"], used["unknown"]) == (None, None, 3), "open: the data's, two cursors'"
    assert used["size"] > 0


def test_what_keeps_ledgers_is_told_as_far_as_it_is_known_while_bookies_are_away() -> None:
    told = bkctl("topic", "why-kept", ROLL, "-o", "json", tree=java_cluster())
    assert told.code == Exit.OK, told.stderr
    rows = told.json()["items"]
    assert [(row["ledger_id"], row["entries"]) for row in rows] == [(62, 50), (63, 50), (64, None)]
    behind = "subscription behind has not consumed it"
    assert [(row["kept"], row["subscription"]) for row in rows] == [
        (behind, "behind"),
        (behind, "behind"),
        ("it is open", None),
    ]
    assert len(told.json()["warnings"]) == 2
    tree = golden.memory_tree()
    asyncio.run(_without(tree, "/managed-ledgers/golden/ns1/persistent/roll/behind"))
    rows = bkctl("topic", "why-kept", ROLL, "-o", "json", tree=tree).json()["items"]
    unknown = "unknown whether subscription holes has consumed it"
    assert [(row["kept"], row["subscription"]) for row in rows[:2]] == [(unknown, "holes")] * 2


def test_topics_are_trimmed_and_deleted_while_bookies_are_away_where_nothing_depends_on_them() -> None:
    tree = golden.memory_tree()
    owned = "/namespace/golden/ns1"
    bundles = asyncio.run(MemoryStore(tree).children(owned))
    asyncio.run(_without(tree, *(f"{owned}/{bundle}" for bundle in bundles)))
    trimmed = bkctl("topic", "trim", ROLL, "--yes", "-o", "json", tree=tree)
    assert (trimmed.code, "the acknowledgments of holes" in trimmed.error()["message"]) == (Exit.UNAVAILABLE, True)
    planned = bkctl("topic", "delete", ROLL, "--dry-run", "-o", "json", tree=tree).json()
    assert "3 ledgers, at least 100 entries, 3 subscriptions; without a broker" in planned["plan"]["steps"][0]
    answer = bkctl("topic", "delete", "golden/ns1/compact", "--yes", "-o", "json", tree=tree)
    assert (answer.code, "what __compaction names" in answer.error()["message"]) == (Exit.UNAVAILABLE, True)
    ledgers = {row["ledger_id"] for row in bkctl("topic", "ledgers", ROLL, "-o", "json", tree=tree).json()["items"]}
    assert bkctl("topic", "delete", ROLL, "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "show", ROLL, tree=tree).code == Exit.NOT_FOUND
    left = {row["ledger_id"] for row in bkctl("ledger", "list", "-o", "json", tree=tree).json()["items"]}
    assert (len(ledgers), ledgers & left) == (5, set())


def test_what_subscriptions_have_is_not_asked_for_to_read() -> None:
    async def hide(tree: MemoryTree) -> None:
        ledgers, path = Stores.of(MemoryStore(tree)).ledgers, "golden/ns1/persistent/moved"
        _, whole = await ledgers.read(path)
        info, version = await ledgers.read_cursor(path, "s")
        await ledgers.write_cursor(path, "s", replace(info, ledger_id=65), version, whole)

    tree = golden.memory_tree()
    asyncio.run(hide(tree))
    assert bkctl("subscription", "show", MOVED, "s", "-o", "json", tree=tree).json()["mark_delete"] is None
    answer = bkctl("topic", "read", MOVED, "--from", "999:0", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["items"]) == (Exit.OK, [])


async def _without(tree: MemoryTree, *paths: str) -> None:
    store = MemoryStore(tree)
    for path in paths:
        await store.delete_any(path)


CURSORS = ["subscription list", "subscription backlog", "subscription show", "cursor list", "cursor show"]


@pytest.mark.parametrize("words", CURSORS)
def test_subscriptions_are_told_of_while_bookies_are_away(words: str) -> None:
    noun, verb = words.split()
    arguments = [noun, verb, ROLL, *(["holes"] if verb == "show" else [])]
    answer = bkctl(*arguments, "-o", "json", tree=java_cluster())
    assert answer.code == Exit.OK, answer.stderr
    assert answer.stderr.count("warning: ") == 2, "the open ledger, what is acknowledged"
    rows = [answer.json()] if verb == "show" else answer.json()["items"]
    by_name = {row.get("subscription", row.get("cursor")): row for row in rows}
    unknown = {"mark_delete", "acked_above", "backlog", "size", "oldest", "ranges", "batches"} & rows[0].keys()
    assert {name: by_name["holes"][name] for name in unknown} == dict.fromkeys(unknown)
    if "mark_delete" in unknown and verb == "list":
        assert by_name["behind"]["mark_delete"] == "62:-1", "it is in the node"
    table = bkctl(*arguments, tree=java_cluster())
    assert table.code == Exit.OK
    assert [cell for line in table.stdout.splitlines() for cell in line.split()].count("-") >= len(unknown) - 1


async def _without_bookies(tree: MemoryTree) -> None:
    bookies = await MemoryStore(tree).children("/ledgers/available")
    await _without(tree, *(f"/ledgers/available/{bookie}" for bookie in bookies if bookie != "readonly"))


def test_what_keeps_a_topic_from_being_loaded() -> None:
    assert bkctl("topic", "why-unloadable", ROLL, MOVED, tree=java_cluster()).code == Exit.OK, "all are registered"
    tree = golden.memory_tree()
    asyncio.run(_without_bookies(tree))
    answer = bkctl("topic", "why-unloadable", ROLL, MOVED, "-o", "json", tree=tree)
    assert answer.code == Exit.FINDINGS
    rows = [row for row in answer.json()["items"] if row["topic"] == ROLL]
    assert [(row["kind"], row["of"], row["problem"], row["stops"]) for row in rows] == [
        ("data", None, "bookies away", "reading"),
        ("data", None, "bookies away", "reading"),
        ("data", None, "bookies away", "loading"),
        ("cursor", "holes", "bookies away", "loading"),
        ("cursor", "mid", "bookies away", "loading"),
    ]
    assert all(row["bookies_away"] for row in rows)
    for ledger_id in (rows[0]["ledger_id"], rows[3]["ledger_id"]):
        assert bkctl("ledger", "delete", ledger_id, "--owned", "--no-backup", "--yes", tree=tree).code == Exit.OK
    missing = bkctl("topic", "why-unloadable", ROLL, "-o", "json", tree=tree).json()["items"]
    gone = [(row["kind"], row["stops"]) for row in missing if row["problem"] == "missing"]
    assert gone == [("data", "reading"), ("cursor", "nothing")]
    tree = golden.memory_tree()
    assert bkctl("topic", "create", "golden/ns1/new", "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "why-unloadable", "golden/ns1/new", tree=tree).code == Exit.OK
