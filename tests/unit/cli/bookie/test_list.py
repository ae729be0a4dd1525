"""`bkctl bookie list`: states, addresses and formats."""

from __future__ import annotations

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import OLD, READ_ONLY, STOPPED, WRITABLE


def test_bookies_of_every_state_are_listed(states: MemoryTree) -> None:
    rows = bkctl("bookie", "list", "-o", "jsonl", tree=states).rows()
    assert [(r["bookie_id"], r["state"], r["address"]) for r in rows] == [
        (WRITABLE, "rw", "10.0.0.1:3181"),
        (READ_ONLY, "ro", "10.0.0.2:3181"),
        (STOPPED, "down", None),
        (OLD, "rw", "10.0.0.4:3181"),
    ]
    assert [(r["http_port"], r["grpc_port"], r["cookie"]) for r in rows] == [
        (8080, 8090, True),
        (8080, 8090, False),
        (None, None, True),
        (None, None, False),
    ]
    assert {(r["ledgers"], r["disk"]) for r in rows} == {(None, None)}


@pytest.mark.parametrize(("state", "expected"), [("rw", [WRITABLE, OLD]), ("ro", [READ_ONLY]), ("down", [STOPPED])])
def test_state_selects_bookies(states: MemoryTree, state: str, expected: list[str]) -> None:
    answer = bkctl("bookie", "list", "--state", state, "-o", "name", tree=states)
    assert (answer.code, answer.stdout.split()) == (0, expected)


def test_a_state_that_does_not_exist_is_a_usage_error(states: MemoryTree) -> None:
    answer = bkctl("bookie", "list", "--state", "up", "-o", "json", tree=states)
    assert (answer.code, answer.stdout, answer.error()["hint"]) == (2, "", "one of rw, ro, down")


def test_a_wide_table_has_the_ports(states: MemoryTree) -> None:
    head, first, *_ = bkctl("bookie", "list", "-o", "csv", tree=states).stdout.splitlines()
    assert head == "bookie_id,state,address,http_port,grpc_port,cookie"
    assert first == f"{WRITABLE},rw,10.0.0.1:3181,8080,8090,true"
