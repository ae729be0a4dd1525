"""Ledgers of DistributedLog's segments and allocators, as LogSegmentMetadata.java writes them."""

from __future__ import annotations

import pytest

from bkctl.errors import Corrupt
from bkctl.meta.owners.base import Owner
from bkctl.meta.owners.distributedlog import plugin

NS = "/messaging/distributedlog"
STREAM = f"{NS}/a/b/<default>"
COMPLETED = 25 << 32 | 5  # records << 32 | format


def named(path: str, data: bytes) -> list[tuple[int, Owner]]:
    return [(one.ledger_id, one.owner) for one in plugin((NS, f"{NS}/inner")).references(path, data)]


@pytest.mark.parametrize(
    ("name", "data", "ledger_id"),
    [
        ("inprogress_000000000000000001", b"5;77;1;1;0;0;0", 77),
        (
            "logrecs_000000000000000001_000000000000000001",
            f"{COMPLETED};78;1;25;1700000000000;1;9;0;0;0;0".encode(),
            78,
        ),
        ("inprogress_000000000000000003", b"1;79;3", 79),
    ],
)
def test_a_segment_names_its_ledger(name: str, data: bytes, ledger_id: int) -> None:
    path = f"{STREAM}/ledgers/{name}"
    assert named(path, data) == [(ledger_id, Owner("stream", f"{NS}/a/b", path))]


def test_an_allocator_names_the_ledger_it_holds() -> None:
    path = f"{STREAM}/allocation"
    assert named(path, b"80") == [(80, Owner("stream", f"{NS}/a/b", path))]
    assert named(path, b"") == []
    pool = f"{NS}/.allocation_pool/p/A"
    assert named(pool, b"81") == [(81, Owner("stream", pool, pool))]


def test_other_nodes_name_no_ledger() -> None:
    for path, data in (
        (NS, b"1\nBKDL\n"),
        (f"{STREAM}/ledgers", b"12"),
        (f"{STREAM}/maxtxid", b"12"),
        (f"{NS}/ledgers/<default>", b"x"),
        ("/elsewhere/a/<default>/ledgers/logrecs_1_1", b"5;1;1;1;0;0;0"),
    ):
        assert named(path, data) == []


@pytest.mark.parametrize("data", [b"", b"5", b"x;77;1", b"6;77;1;1", b"5;-1;1", b"5;seven;1"])
def test_a_malformed_segment_is_an_error(data: bytes) -> None:
    with pytest.raises(Corrupt, match="DistributedLog segment"):
        named(f"{STREAM}/ledgers/logrecs_1_1", data)


def test_a_malformed_allocator_is_an_error() -> None:
    with pytest.raises(Corrupt, match="DistributedLog allocator"):
        named(f"{STREAM}/allocation", b"x")


def test_the_stream_is_named_below_the_longest_namespace() -> None:
    path = f"{NS}/inner/s/<default>/ledgers/logrecs_1_1"
    assert named(path, b"1;5;1") == [(5, Owner("stream", f"{NS}/inner/s", path))]
