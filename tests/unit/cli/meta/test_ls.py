"""`meta ls`: the nodes below a node."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl


def test_children_are_listed_with_their_stat(tree: MemoryTree) -> None:
    names = bkctl("meta", "ls", "-o", "jsonl", tree=tree).rows()
    assert [row["name"] for row in names] == sorted(row["name"] for row in names)
    by_name = {row["name"]: row for row in names}
    assert by_name["LAYOUT"]["size"] == 63
    assert by_name["available"]["children"] == 6
    assert by_name["e"]["ephemeral_owner"] == "0x1"
    assert by_name["cookies"]["ephemeral_owner"] is None
    cookies = bkctl("meta", "ls", "cookies", "-o", "name", tree=tree).stdout.splitlines()
    assert cookies == [f"/ledgers/cookies/127.0.0.1:{port}" for port in range(32810, 32817)]
    assert bkctl("meta", "ls", "cookies/127.0.0.1:32810", "-o", "name", tree=tree).stdout == ""
    assert bkctl("meta", "ls", "nothing", tree=tree).code == 4


def test_a_node_that_does_not_exist_prints_nothing_on_stdout(tree: MemoryTree) -> None:
    for output in ("table", "json", "csv"):
        answer = bkctl("meta", "ls", "nothing", "-o", output, tree=tree)
        assert (answer.code, answer.stdout) == (4, "")
        assert len(answer.stderr.splitlines()) == 1
    assert bkctl("meta", "ls", "/ledgers/", tree=tree).code == 2


def test_all_descendants_are_listed_recursively(tree: MemoryTree) -> None:
    paths = bkctl("meta", "ls", "/", "-r", "-o", "name", tree=tree).stdout.splitlines()
    assert sorted(paths) == sorted(set(tree.nodes) - {"/"})


def test_a_table_of_nodes_has_their_paths_and_the_session_of_ephemeral_ones(tree: MemoryTree) -> None:
    head, *lines = bkctl("meta", "ls", tree=tree).stdout.splitlines()
    assert head.split() == ["path", "children", "size", "version", "ephemeral_owner"]
    owners = {line.split()[0]: line.split()[4] for line in lines}
    assert (owners["/ledgers/e"], owners["/ledgers/LAYOUT"]) == ("0x1", "-")
    (below,) = [
        row for row in bkctl("meta", "ls", "/", "-o", "json", tree=tree).json()["items"] if row["name"] == "ledgers"
    ]
    assert below["children"] == len(lines)
