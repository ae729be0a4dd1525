"""`meta get`: nodes, decoded where their format is known."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.meta.nodes import NODES


def get(tree: MemoryTree, path: str, *options: str) -> Any:
    answer = bkctl("meta", "get", path, "-o", "json", *options, tree=tree)
    assert answer.code == 0, answer.stderr
    return answer.json()


def test_every_golden_node_is_decoded(tree: MemoryTree) -> None:
    kinds = {path: get(tree, path)["kind"] for path in NODES}
    assert "unknown" not in kinds.values()
    assert {path for path, kind in kinds.items() if kind == "empty"} == {
        path for path, data in NODES.items() if not data
    } - {"/ledgers/underreplication/auditorelection"}


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("LAYOUT", "layout", {"manager": "hierarchical", "format": 2}),
        ("INSTANCEID", "instance_id", "942201c5-f0f4-47d0-9977-c5329d9910f4"),
        ("underreplication/lostBookieRecoveryDelay", "delay_s", 0),
        ("underreplication/locks/urL0000000026", "lock", "localhost"),
        ("underreplication/auditorelection", "auditor", "127.0.0.1:32810"),
        ("underreplication/auditorelection/V_0000000000", "vote", "127.0.0.1:32810"),
        (
            "underreplication/ledgers/0000/0000/0000/001a/urL0000000026",
            "marker",
            {"replicas": ["127.0.0.1:32816"], "ctime_ms": 1795230472370},
        ),
    ],
)
def test_a_node_of_a_known_format_has_its_kind_and_value(tree: MemoryTree, path: str, kind: str, value: object) -> None:
    item = get(tree, path)
    assert (item["path"], item["kind"], item["value"], item["data"]) == (f"/ledgers/{path}", kind, value, None)


def test_a_ledger_is_shown_as_by_ledger_show_without_its_password(tree: MemoryTree) -> None:
    item = get(tree, "/ledgers/00/0000/L0001")
    assert (item["kind"], item["version"], item["data"]) == ("ledger", 0, None)
    assert item["value"] == bkctl("ledger", "show", 1, "-o", "json", tree=tree).json()
    assert item["value"]["password"] is None
    shown = get(tree, "/ledgers/00/0000/L0001", "--show-password")["value"]["password"]
    assert base64.b64decode(shown) == b"s3cret"


def test_cookies_and_registrations_are_decoded(tree: MemoryTree) -> None:
    cookie = get(tree, "cookies/127.0.0.1:32810")["value"]
    assert (cookie["bookie_id"], cookie["journal_dirs"]) == ("127.0.0.1:32810", ["/bkgold/data/bookie0/journal"])
    info = get(tree, "available/readonly/127.0.0.1:32814")["value"]
    assert [e["protocol"] for e in info["endpoints"]] == ["http", "bookie-rpc"]


def test_raw_writes_the_bytes_of_a_node(tree: MemoryTree) -> None:
    for path in ("/ledgers/00/0000/L0001", "/ledgers/foreign", "/ledgers/00/0000/L9999"):
        assert bkctl("meta", "get", path, "--raw", tree=tree).raw == tree.nodes[path].data
    item = get(tree, "foreign")
    assert (item["kind"], item["value"], base64.b64decode(item["data"])) == ("unknown", None, b"\x00\xff")


@pytest.mark.parametrize(
    ("path", "code", "kind"),
    [("nothing", 4, "not_found"), ("/ledgers/00/0000/L9999", 8, "corrupt"), ("/ledgers/", 2, "usage")],
)
def test_a_node_that_cannot_be_shown_prints_nothing_on_stdout(
    tree: MemoryTree, path: str, code: int, kind: str
) -> None:
    answer = bkctl("meta", "get", path, "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)


def test_of_several_nodes_those_that_cannot_be_shown_are_warnings(tree: MemoryTree) -> None:
    names = bkctl("meta", "ls", "cookies", "-o", "name", tree=tree).raw
    rows = bkctl("meta", "get", "-", "-o", "jsonl", stdin=names, tree=tree).rows()
    assert [row["kind"] for row in rows] == ["cookie"] * 7
    some = bkctl("meta", "get", "LAYOUT", "nothing", "/ledgers/00/0000/L9999", "-o", "json", tree=tree)
    assert (some.code, [item["kind"] for item in some.json()["items"]]) == (1, ["layout"])
    assert len(some.json()["warnings"]) == 2
    assert bkctl("meta", "get", "LAYOUT", "INSTANCEID", "--raw", tree=tree).code == 2
