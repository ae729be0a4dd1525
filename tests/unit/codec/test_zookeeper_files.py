"""ZooKeeper's files: those of a real server, what they come to, and what is wrong with damaged ones."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.zookeeper_files import (
    CONTAINER_OWNER,
    TTL_OWNER,
    Changed,
    Created,
    Deleted,
    Read,
    SessionClosed,
    Transaction,
    decode_transaction,
    log_transactions,
    snapshot_nodes,
)
from bkctl.errors import BadBytes, Corrupt, TornTail

FOLDER = Path(__file__).parents[2] / "data/zookeeper"
(SNAPSHOT,) = (path.read_bytes() for path in FOLDER.glob("snapshot.*"))
(LOG,) = (path.read_bytes() for path in FOLDER.glob("log.*"))
NODES = json.loads((FOLDER / "nodes.json").read_text())


def reads(data: bytes) -> Read:
    return lambda size, offset: data[offset : offset + size]


def transactions(data: bytes) -> list[Transaction]:
    return list(log_transactions(reads(data), source="log"))


def test_the_nodes_of_a_real_snapshot() -> None:
    nodes = {node.path: node for node in snapshot_nodes(reads(SNAPSHOT), source="snapshot")}
    expected = {row["path"]: row for row in NODES}
    same = nodes["/ledgers/00/0000/L0005"]
    row = expected[same.path]
    assert same.data == base64.b64decode(row["data"])
    assert (same.version, same.ctime_ms, same.mtime_ms, same.owner) == (0, row["ctime"], row["mtime"], 0)
    assert nodes["/ledgers/00/0000/L0002"].version == 1
    assert nodes["/ledgers/available/127.0.0.1:3181"].owner != 0
    assert "/ledgers/00/0000/L0006" not in nodes, "it came later"


def test_the_transactions_of_a_real_log() -> None:
    found = transactions(LOG)
    assert [one.zxid for one in found] == sorted(one.zxid for one in found)
    changes: list[Any] = [change for one in found for change in one.changes]
    created = {change.path: change for change in changes if isinstance(change, Created)}
    assert created["/ledgers/container"].owner == CONTAINER_OWNER
    assert created["/ledgers/passing"].owner == TTL_OWNER | 1_000_000_000
    assert {change.path for change in changes if isinstance(change, Deleted)} == {
        "/ledgers/00/0000/L0003",
        "/ledgers/00/0000/L0004",
    }
    changed = [(c.path[-5:], c.version) for c in changes if isinstance(c, Changed)]
    assert changed == [("L0001", 1), ("L0001", 2), ("L0008", 1)]
    assert "/ledgers/00/0000/L0009" not in created, "its transaction failed"
    (three,) = [one for one in found if len(one.changes) == 3]
    assert [type(change) for change in three.changes] == [Created, Changed, Deleted]
    closed = [change.session_id for change in changes if isinstance(change, SessionClosed)]
    assert created["/ledgers/available/127.0.0.2:3181"].owner in closed


def test_a_log_ends_where_the_server_stopped() -> None:
    found, data = transactions(LOG), LOG.rstrip(b"\0")
    assert data.endswith(b"B")
    assert transactions(data) == found, "not preallocated"
    assert transactions(data + bytes(1 << 20)) == found
    for cut in (1, 2, 9, 20):
        assert transactions(data[:-cut]) == found[:-1], "the last one was cut off"
        assert transactions(data[:-cut] + bytes(100)) == found[:-1]
    assert transactions(b"") == transactions(bytes(100)) == []


def test_what_was_changed_is_found() -> None:
    with pytest.raises(Corrupt, match="checksum of a transaction"):
        transactions(LOG[:60] + bytes([LOG[60] ^ 1]) + LOG[61:])
    first_end = 16 + 12 + struct.unpack_from(">i", LOG, 24)[0]
    assert LOG[first_end : first_end + 1] == b"B"
    with pytest.raises(Corrupt, match="end of a transaction"):
        transactions(LOG[:first_end] + b"C" + LOG[first_end + 1 :])
    with pytest.raises(Corrupt, match="magic"):
        transactions(SNAPSHOT)
    with pytest.raises(Corrupt, match="magic"):
        list(snapshot_nodes(reads(LOG), source="snapshot"))
    at = SNAPSHOT.index(b"L0005")
    with pytest.raises(Corrupt, match="seal"):
        list(snapshot_nodes(reads(SNAPSHOT[:at] + b"M" + SNAPSHOT[at + 1 :]), source="snapshot"))
    with pytest.raises(TornTail):
        list(snapshot_nodes(reads(SNAPSHOT[:at]), source="snapshot"))


def text(value: str) -> bytes:
    return struct.pack(">i", len(value.encode())) + value.encode()


def test_a_create_of_a_server_before_3_4_has_no_cversion() -> None:
    head = struct.pack(">qiqqi", 7, 1, 9, 1000, 1)
    body = text("/a") + struct.pack(">i", -1) + struct.pack(">i", 0) + b"\x01"
    assert decode_transaction(head + body, source="log") == Transaction(9, 1000, (Created("/a", b"", 7),))


@given(at=st.integers(0, len(SNAPSHOT) - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_any_damage_of_a_snapshot_is_bad_bytes_or_behind_the_seal(at: int, bit: int, cut: bool) -> None:
    whole = list(snapshot_nodes(reads(SNAPSHOT), source="snapshot"))
    data = SNAPSHOT[:at] if cut else SNAPSHOT[:at] + bytes([SNAPSHOT[at] ^ 1 << bit]) + SNAPSHOT[at + 1 :]
    try:
        assert list(snapshot_nodes(reads(data), source="snapshot")) == whole
    except BadBytes:
        return
    assert data[:at] == SNAPSHOT[:at]


@given(at=st.integers(0, len(LOG) - 1), bit=st.integers(0, 7))
def test_any_damage_of_a_log_is_bad_bytes_or_its_end(at: int, bit: int) -> None:
    whole = transactions(LOG)
    try:
        found = transactions(LOG[:at] + bytes([LOG[at] ^ 1 << bit]) + LOG[at + 1 :])
    except BadBytes:
        return
    assert found == whole[: len(found)]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_transaction_or_bad(data: bytes) -> None:
    try:
        decode_transaction(data, source="log")
    except BadBytes:
        pass


@given(st.binary(max_size=300))
def test_a_checked_transaction_is_decoded_or_bad(data: bytes) -> None:
    log = LOG[:16] + struct.pack(">qi", zlib.adler32(data), len(data)) + data + b"B"
    try:
        assert len(transactions(log)) == (len(data) > 0)
    except BadBytes:
        pass
