"""What the verbs of `bkctl bookie` share: names of bookies, their state, their registration, their disk."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.cli.bookie import _items
from bkctl.errors import NotFound, Unavailable
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieState
from bkctl.model.ids import BookieId
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import READ_ONLY, ROOT, STOPPED, UNKNOWN, WRITABLE, on

A, B, C = map(BookieId, ("a:1", "b:1", "c:1"))


def test_a_bookie_that_is_registered_twice_is_writable() -> None:
    directory = _items.Directory({A}, {A, B}, {A, B, C})
    assert [directory.state(bookie) for bookie in (A, B, C)] == [
        BookieState.READ_WRITE, BookieState.READ_ONLY, BookieState.DOWN,
    ]  # fmt: skip
    assert directory.all() == [A, B, C]
    with pytest.raises(NotFound, match="bookie d:1 does not exist"):
        directory.state(BookieId("d:1"))


def test_names_are_read_from_stdin_and_each_bookie_is_shown_once(states: MemoryTree) -> None:
    stdin = f"{WRITABLE}\n{STOPPED}\n{WRITABLE}\n".encode()
    answer = bkctl("bookie", "set", "read-only", "-", "--dry-run", tree=states, stdin=stdin)
    assert (answer.code, answer.stdout) == (6, ""), "one of them is down"
    answer = bkctl("bookie", "ping", STOPPED, STOPPED, "-o", "jsonl", tree=states)
    assert [row["bookie_id"] for row in answer.rows()] == [STOPPED]


def test_a_registration_that_cannot_be_decoded_is_a_warning(states: MemoryTree) -> None:
    on(states, lambda store: store.overwrite(f"{ROOT}/available/{WRITABLE}", b"\xff\xff\xff"))
    answer = bkctl("bookie", "list", "-o", "json", tree=states)
    (warning,) = answer.json()["warnings"]
    assert f"/available/{WRITABLE}" in warning
    items = {item["bookie_id"]: item["address"] for item in answer.json()["items"]}
    assert (items[WRITABLE], items[READ_ONLY]) == (None, "10.0.0.2:3181")


class Unregisters(MemoryStore):
    """A store in which a bookie unregisters between two reads."""

    async def get(self, path: str) -> object:  # type: ignore[override]
        if path == f"{ROOT}/available/{WRITABLE}":
            await self.delete_any(path)
        return await super().get(path)


def test_a_bookie_that_unregisters_meanwhile_is_a_warning(states: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", Unregisters)
        answer = bkctl("bookie", "list", "-o", "json", tree=states)
    assert (answer.code, len(answer.json()["warnings"])) == (0, 1)
    assert answer.json()["items"][0]["address"] is None


@pytest.mark.parametrize("verb", [("status",), ("ping",), ("set", "read-only")])
def test_an_unknown_bookie_is_not_found_and_a_bad_name_is_a_usage_error(
    states: MemoryTree, verb: tuple[str, ...]
) -> None:
    for name, code, kind in ((UNKNOWN, 4, "not_found"), ("read only", 2, "usage")):
        answer = bkctl("bookie", *verb, name, "-o", "json", tree=states)
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)


def test_a_disk_is_unavailable_where_no_process_listens() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        asyncio.run(_items.disk_by_wire("127.0.0.1:1", A))
