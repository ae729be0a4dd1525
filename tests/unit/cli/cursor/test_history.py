"""`cursor history`: the states in a cursor's ledger."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.unit.cli.topic.golden_topics import ROLL
from tests.unit.cli.topic.live import Live


def test_the_states_of_a_cursor_are_listed_oldest_first(java: Live) -> None:
    rows = java.bkctl("cursor", "history", ROLL, "holes", "-o", "json").json()["items"]
    assert [(row["ledger_id"], row["entry_id"]) for row in rows] == [(65, 0), (65, 1)]
    assert rows[-1]["mark_delete"] == "62:39"
    assert (rows[-1]["ranges"], rows[-1]["batches"], rows[-1]["topic"]) == (13, 0, ROLL)
    head = java.bkctl("cursor", "history", ROLL, "mid").stdout.splitlines()[0]
    assert head.split() == ["ledger_id", "entry_id", "mark_delete", "ranges", "batches", "longs"]
    assert java.bkctl("cursor", "history", ROLL, "mid", "-o", "name").stdout == "0\n1\n"


def test_a_cursor_in_its_node_has_no_history(java: Live) -> None:
    answer = java.bkctl("cursor", "history", ROLL, "behind", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (Exit.OK, [])
    assert "behind is stored in its metadata node and has no history" in answer.stderr


def test_a_state_that_cannot_be_decoded_is_a_warning_after_the_states_before_it(live: Live) -> None:
    from bkctl.codec.managed_ledger import CursorState, ManagedCursorInfo, encode_cursor_state
    from bkctl.meta.managed_ledgers import ManagedLedgerStore
    from bkctl.meta.memory import MemoryStore
    from bkctl.model.topic import Position

    topic = live.topic("history", 2)
    stored = live.ledger([encode_cursor_state(CursorState(Position(1, 1))), b"\xff\xff"])

    async def create() -> None:
        ledgers = ManagedLedgerStore(MemoryStore(live.tree))
        path = "public/default/persistent/history"
        _, version = await ledgers.read(path)
        await ledgers.create_cursor(path, "s", ManagedCursorInfo(stored, CursorState(Position(1, 0))), version)

    live.on_loop(create())
    answer = live.bkctl("cursor", "history", topic, "s", "-o", "json")
    assert [row["mark_delete"] for row in answer.json()["items"]] == ["1:1"], answer.stderr
    assert [f"ledger {stored}, entry 1" in warning for warning in answer.json()["warnings"]] == [True]
    shown = live.bkctl("cursor", "show", topic, "s", "-o", "json").json()
    assert (shown["mark_delete"], shown["lost"] is None) == ("1:0", False), "the older state in its node"


def test_a_cursor_or_topic_that_does_not_exist_is_not_found(java: Live) -> None:
    for topic in (ROLL, "golden/ns1/none"):
        answer = java.bkctl("cursor", "history", topic, "none", "-o", "json")
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
