"""Owners in the nodes and the custom metadata that Java's broker wrote."""

from __future__ import annotations

import pytest

from bkctl.codec.managed_ledger import (
    CursorState,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    encode_cursor_info,
    encode_ledger_info,
    wrap,
)
from bkctl.errors import BadBytes
from bkctl.meta.owners.base import Claim, Owner
from bkctl.meta.owners.pulsar import claim, references
from bkctl.model.topic import Position
from tests import pulsar_golden as golden

TOPIC = "/managed-ledgers/t/n/persistent/sp%C3%A9+x"
NAME = "persistent://t/n/spé x"


def named(path: str, data: bytes, *prefixes: str) -> dict[int, Owner]:
    return {one.ledger_id: one.owner for one in references(prefixes or ("",), path, data)}


def test_every_reference_of_the_golden_tree_is_found() -> None:
    found: dict[str, set[int]] = {}
    for node in golden.tree("pulsar/zk_tree_stopped.json"):
        for ledger_id, owner in named(node["path"], node["data"]).items():
            found.setdefault(owner.kind, set()).add(ledger_id)
    info = golden.decoded("pulsar/decoded_stopped.json")
    topics = {
        ledger["ledgerId"]
        for path, value in info.items()
        if golden.LEDGER_NODE.fullmatch(path)
        for ledger in value["value"].get("ledgerInfo", ())
    }
    assert found["topic"] == topics
    assert found.keys() == {"topic", "schema", "compaction"}, "the broker has stored its cursors in their nodes"


def test_a_wrapped_node_is_read() -> None:
    data = wrap(encode_ledger_info(ManagedLedgerInfo((LedgerInfo(7), LedgerInfo(8)))))
    assert named(TOPIC, data) == {7: Owner("topic", NAME, TOPIC), 8: Owner("topic", NAME, TOPIC)}


def test_a_cursor_names_its_ledger_and_the_compacted_ledger() -> None:
    state = CursorState(Position(7, 3), longs={"CompactedTopicLedger": 11})
    path = f"{TOPIC}/__compaction"
    assert named(path, encode_cursor_info(ManagedCursorInfo(9, state))) == {
        9: Owner("cursor", f"{NAME}/__compaction", path),
        11: Owner("compaction", NAME, path),
    }
    assert named(path, encode_cursor_info(ManagedCursorInfo(-1, CursorState(Position(7, 3))))) == {}


def test_a_managed_ledger_with_an_unusual_name_is_read_with_its_cursors() -> None:
    path = "/managed-ledgers/mine"
    assert named(path, encode_ledger_info(ManagedLedgerInfo((LedgerInfo(7),)))) == {7: Owner("topic", "mine", path)}
    cursor = f"{path}/c"
    assert named(cursor, encode_cursor_info(ManagedCursorInfo(9))) == {9: Owner("cursor", "mine/c", cursor)}


def test_only_nodes_below_the_prefix_are_read() -> None:
    data = encode_ledger_info(ManagedLedgerInfo((LedgerInfo(7),)))
    assert named("/pulsar" + TOPIC, data, "/pulsar") == {7: Owner("topic", NAME, "/pulsar" + TOPIC)}
    assert named("/other" + TOPIC, data, "/pulsar", "") == {}


@pytest.mark.parametrize("path", [TOPIC, f"{TOPIC}/s", "/managed-ledgers/mine", "/schemas/t/n/x"])
def test_a_malformed_node_is_an_error(path: str) -> None:
    with pytest.raises(BadBytes):
        named(path, b"\xff\xff\xff")


TREES = ("/managed-ledgers",)


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        ({}, None),
        ({"application": b"other", "component": b"x"}, None),
        (
            {"application": b"pulsar", "pulsar/managed-ledger": b"t/n/persistent/sp%C3%A9+x"},
            Claim(Owner("topic", NAME), TREES, (TOPIC,)),
        ),
        (
            {"pulsar/managed-ledger": b"t/n/persistent/sp%C3%A9+x", "pulsar/cursor": b"a/b"},
            Claim(Owner("cursor", f"{NAME}/a%2Fb"), TREES, (TOPIC,)),
        ),
        (
            {"application": b"pulsar", "pulsar/compactedTopic": "persistent://t/n/spé x".encode()},
            Claim(Owner("compaction", NAME), TREES, (TOPIC,)),
        ),
        (
            {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": b"t/n/x"},
            Claim(
                Owner("schema", "persistent://t/n/x"),
                TREES,
                (
                    "/schemas/t/n/x",
                    "/managed-ledgers/t/n/persistent/x",
                    "/admin/partitioned-topics/t/n/persistent/x",
                ),
            ),
        ),
        ({"application": b"pulsar"}, Claim(Owner("application", "pulsar"), TREES, ())),
        ({"pulsar/managed-ledger": b"a//b"}, Claim(Owner("topic", "a//b"))),
    ],
)
def test_custom_metadata_names_an_owner(custom: dict[str, bytes], expected: Claim | None) -> None:
    assert claim(("",), custom) == expected
