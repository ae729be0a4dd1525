"""Rows of ledgers that nodes of topics, cursors and DistributedLog name."""

from __future__ import annotations

import pytest
from bkinspect.audit.schemas import CURSORS, TOPICS
from bkinspect.audit.sources.managed import ALLOCATION, STREAM_NAMESPACES, rows_of, stream_rows
from bkinspect.audit.sources.nodes import StoredNode

from bkctl.codec.managed_ledger import (
    CursorState,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    encode_cursor_info,
    encode_ledger_info,
)
from bkctl.errors import BadBytes
from bkctl.model.topic import Position

TOPIC_PATH = "/managed-ledgers/public/default/persistent/t"
TOPIC = "persistent://public/default/t"
STREAM = "/distributedlog/orders/<default>"


def node(path: str, data: bytes) -> StoredNode:
    return StoredNode(path, data, 0, None, None, False)


def topics(rows: list[tuple[object, ...]]) -> list[dict[str, object]]:
    return [dict(zip(TOPICS.names, row, strict=True)) for row in rows]


def test_the_last_ledger_of_a_topic_may_be_open_unless_the_topic_is_terminated() -> None:
    ledgers = (LedgerInfo(1, 5, 100, 1000), LedgerInfo(2))
    found, cursors = rows_of(node(TOPIC_PATH, encode_ledger_info(ManagedLedgerInfo(ledgers))))
    first, last = topics(found)
    assert cursors == []
    assert (first["topic"], first["ledger_id"], first["kind"], first["position"]) == (TOPIC, 1, "data", 0)
    assert (first["last"], first["entries"], first["size"], first["closed_ms"]) == (False, 5, 100, 1000)
    assert (last["last"], last["entries"], last["closed_ms"], last["offloaded"]) == (True, None, None, False)
    assert last["path"] == TOPIC_PATH
    ended = ManagedLedgerInfo(ledgers, terminated=Position(1, 4))
    assert [row["last"] for row in topics(rows_of(node(TOPIC_PATH, encode_ledger_info(ended)))[0])] == [False, False]


def test_a_cursor_names_its_ledger_and_its_mark_delete_position() -> None:
    info = ManagedCursorInfo(9, CursorState(Position(1, 3)), 777)
    found, cursors = rows_of(node(f"{TOPIC_PATH}/sub", encode_cursor_info(info)))
    (named,) = topics(found)
    assert (named["ledger_id"], named["kind"], named["cursor"], named["topic"]) == (9, "cursor", "sub", TOPIC)
    (row,) = [dict(zip(CURSORS.names, one, strict=True)) for one in cursors]
    assert row == {
        "topic": TOPIC,
        "cursor": "sub",
        "cursor_ledger_id": 9,
        "mark_delete_ledger_id": 1,
        "mark_delete_entry_id": 3,
        "last_active_ms": 777,
        "path": f"{TOPIC_PATH}/sub",
    }


def test_a_cursor_without_a_ledger_names_none() -> None:
    info = ManagedCursorInfo(-1, CursorState(Position(1, 3)))
    found, cursors = rows_of(node(f"{TOPIC_PATH}/sub", encode_cursor_info(info)))
    assert found == []
    assert len(cursors) == 1


def test_directories_have_no_rows_and_damaged_nodes_are_errors() -> None:
    assert rows_of(node("/managed-ledgers/public", b"")) == ([], [])
    with pytest.raises(BadBytes):
        rows_of(node(TOPIC_PATH, b"\xff\xff\xff"))


@pytest.mark.parametrize(
    ("name", "data", "ledger_id", "kind", "last"),
    [
        ("ledgers/logrecs_1_9", f"{9 << 32 | 5};7;1;9;0;9;9;0;1;0;0;0", 7, "stream", False),
        ("ledgers/inprogress_10", "5;8;10;2;0;0;0", 8, "stream", True),
        ("allocation", "9", 9, ALLOCATION, True),
    ],
)
def test_nodes_of_streams_name_segments_and_allocated_ledgers(
    name: str, data: str, ledger_id: int, kind: str, last: bool
) -> None:
    (row,) = topics(stream_rows(node(f"{STREAM}/{name}", data.encode()), STREAM_NAMESPACES))
    assert (row["ledger_id"], row["kind"], row["last"], row["path"]) == (ledger_id, kind, last, f"{STREAM}/{name}")
