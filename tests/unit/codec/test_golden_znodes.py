"""Every node that Java servers left in ZooKeeper: decoded and encoded again, byte for byte."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable

import pytest

from bkctl.codec import layout, registration
from bkctl.codec import underreplication as under
from bkctl.codec.data_dir import decode_cookie, encode_cookie
from bkctl.codec.ledger_metadata import decode_metadata, encode_metadata
from bkctl.meta.paths import ledger_path, parse_ledger_path
from tests.golden import DIGESTS, FOLDER, Golden

ROOT = "/ledgers"


def through(decode: Callable[..., object], encode: Callable[..., bytes]) -> Callable[[bytes, str], bytes]:
    return lambda data, path: encode(decode(data, source=path))


def layout_of_markers(data: bytes, path: str) -> bytes:
    under.check_layout(data, source=path)
    return under.encode_layout()


SERVICE_INFO = through(registration.decode_service_info, registration.encode_service_info)
MARKER = through(under.decode_marker, under.encode_marker)
HOLDER = through(under.decode_holder, under.encode_holder)
CHECK_TIME = through(under.decode_check_time, under.encode_check_time)
KINDS: list[tuple[str, str, Callable[[bytes, str], bytes]]] = [
    ("ledger", r".*/L\d+", through(decode_metadata, encode_metadata)),
    ("cookie", r"/ledgers/cookies/.+", through(decode_cookie, encode_cookie)),
    ("registration", r"/ledgers/available/(readonly/)?[^/]+:\d+", SERVICE_INFO),
    ("layout", r"/ledgers/LAYOUT", through(layout.decode_layout, layout.encode_layout)),
    ("instance", r"/ledgers/INSTANCEID", through(layout.decode_instance_id, layout.encode_instance_id)),
    ("marker layout", r".*/underreplication/LAYOUT", layout_of_markers),
    ("marker", r".*/underreplication/ledgers/.*urL\d+", MARKER),
    ("holder", r".*/(locks/urL\d+|auditorelection(/V_\d+)?)", HOLDER),
    ("delay", r".*/lostBookieRecoveryDelay", through(under.decode_delay, under.encode_delay)),
    ("check time", r".*/(checkallledgers|placementpolicycheck|replicascheck)ctime", CHECK_TIME),
]


def nodes(tree: str) -> list[tuple[str, bytes]]:
    return [(n["path"], base64.b64decode(n["data"])) for n in json.loads((FOLDER / tree).read_text())]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            "zk_tree.json",
            {"ledger": 30, "cookie": 7, "registration": 6, "marker": 5, "holder": 3}
            | {"layout": 1, "instance": 1, "marker layout": 1, "delay": 1},
        ),
        ("variants/zk_tree.json", {"ledger": 8, "cookie": 5, "registration": 5, "layout": 1, "instance": 1}),
    ],
)
def test_every_node_comes_back_byte_for_byte(tree: str, expected: dict[str, int]) -> None:
    seen: Counter[str] = Counter()
    for path, data in nodes(tree):
        kind = next((k for k in KINDS if re.fullmatch(k[1], path)), None)
        if kind is None:
            assert data == b"", f"nobody knows {path}"
            continue
        assert kind[2](data, path) == data, path
        seen[kind[0]] += 1
    for kind_name, least in expected.items():
        assert seen[kind_name] >= least, seen


@pytest.mark.parametrize("tree", ["zk_tree.json", "variants/zk_tree.json"])
def test_ledgers_are_where_their_ids_say_and_as_the_manifest_says(golden: Golden, tree: str) -> None:
    manifest = golden.variants if tree.startswith("variants") else golden.manifest
    rows = {row["ledger"]: row for row in manifest["ledgers"]}
    for path, data in nodes(tree):
        ledger_id = parse_ledger_path(ROOT, path)
        if ledger_id is None:
            continue
        row, metadata = rows.pop(ledger_id), decode_metadata(data, source=path)
        assert ledger_path(ROOT, layout.LedgerManager.HIERARCHICAL, ledger_id) == path
        assert (metadata.ensemble_size, metadata.write_quorum_size) == (row["E"], row["Qw"])
        assert (metadata.state.name, metadata.format_version) == (row["state"], row["metadata_version"])
        if "ensembles" in row:
            assert [(e.first_entry_id, list(e.bookies)) for e in metadata.ensembles] == [
                (e["first"], e["bookies"]) for e in row["ensembles"]
            ]
        else:
            assert data.partition(b"\n")[2].decode() == row["metadata_text"]
        if metadata.closed and "last_entry" in row:
            assert (metadata.last_entry_id, metadata.length) == (row["last_entry"], row["length"])
        if metadata.password is not None:
            assert metadata.password == row["password"].encode()
            assert metadata.digest_type is DIGESTS[row["digest"]]
            assert metadata.ack_quorum_size == row["Qa"]
            assert metadata.custom_metadata == {k: v.encode() for k, v in row["custom_metadata"].items()}
    assert all(row["deleted"] for row in rows.values())
