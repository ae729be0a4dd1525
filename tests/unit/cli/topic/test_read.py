"""`topic read`: entries of topics, from bookies."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace

import pytest

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar import Stores
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, NOWHERE, ROLL
from tests.unit.cli.topic.live import Live


def payloads(rows: list[dict[str, str]]) -> list[bytes]:
    return [base64.b64decode(row["payload"]) for row in rows]


def test_entries_are_read_over_the_ends_of_ledgers(live: Live) -> None:
    topic = live.topic("read", 3, 2, 4)
    rows = live.bkctl("topic", "read", topic, "-o", "jsonl").rows()
    assert payloads(rows) == [b"m%d" % number for number in range(9)]
    first, second, third = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()
    some = live.bkctl("topic", "read", topic, "--from", f"{first}:2", "--count", 4, "-o", "name")
    assert some.stdout.split() == [f"{first}:2", f"{second}:0", f"{second}:1", f"{third}:0"]
    assert live.bkctl("topic", "read", topic, "--from", second, "--count", 2, "--raw").raw == b"m3m4"
    after = live.bkctl("topic", "read", topic, "--from", f"{third}:4", "-o", "json")
    assert (after.code, after.json()["items"]) == (Exit.OK, [])


def test_each_entry_of_a_topic_of_java_is_decoded(java: Live) -> None:
    rows = java.bkctl("topic", "read", ROLL, "--count", 51, "-o", "jsonl").rows()
    assert [row["position"] for row in rows] == [*(f"62:{entry}" for entry in range(50)), "63:0"]
    sizes = [len(row["payload"]) for row in golden.entries() if row["ledger"] == 62]
    assert [row["size"] for row in rows[:50]] == sizes
    assert {(row["messages"], row["compression"], row["encrypted"]) for row in rows} == {(1, "none", False)}


def test_a_count_is_shared_by_several_topics(live: Live) -> None:
    a, b = live.topic("read-a", 2), live.topic("read-b", 2)
    rows = live.bkctl("topic", "read", a, b, "--count", 3, "-o", "jsonl").rows()
    assert [row["topic"] for row in rows] == [a, a, b]
    missing = live.bkctl("topic", "read", a, "read-none", "-o", "json")
    assert (missing.code, len(missing.json()["items"])) == (Exit.FINDINGS, 2)


@pytest.mark.parametrize("options", [("--count", "0"), ("--from", "x:1"), ("--from", "1:y")])
def test_wrong_options_are_refused_before_connecting(options: tuple[str, str]) -> None:
    answer = bkctl("-m", NOWHERE, "topic", "read", "t", *options)
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")


def test_a_topic_that_does_not_exist_prints_nothing_on_stdout(live: Live) -> None:
    for output in ("table", "json", "tsv"):
        answer = live.bkctl("topic", "read", "read-none", "-o", output)
        assert (answer.code, answer.stdout) == (Exit.NOT_FOUND, "")


def test_the_state_of_subscriptions_is_not_read() -> None:
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
