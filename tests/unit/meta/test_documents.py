"""JSON nodes: decoded, encoded as Jackson does, changed by compare-and-set."""

from __future__ import annotations

import pytest

from bkctl.errors import Conflict, Corrupt, NotFound
from bkctl.meta.documents import (
    UPDATE_ROUNDS_MAX,
    Document,
    Json,
    decode_json,
    encode_json,
    read_document,
    update_document,
)
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.unit.meta.memory_runs import on


def test_json_is_written_without_blanks_and_as_utf_8() -> None:
    assert encode_json({"é": [1, None], "b": {"c": True}}) == '{"é":[1,null],"b":{"c":true}}'.encode()


def test_an_empty_node_is_an_empty_object() -> None:
    assert decode_json(b"", source="/n") == {}
    assert decode_json(b' {"a": 1} ', source="/n") == {"a": 1}


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"[]", "not a JSON object"), (b'"x"', "not a JSON object")],
)
def test_other_bytes_are_corrupt_with_the_path(data: bytes, what: str) -> None:
    with pytest.raises(Corrupt, match=what) as caught:
        decode_json(data, source="/n")
    assert caught.value.source == "/n"


def test_a_missing_node_is_read_as_none_and_cannot_be_updated() -> None:
    async def scenario(store: MemoryStore) -> None:
        assert await read_document(store, "/n") is None
        with pytest.raises(NotFound):
            await update_document(store, "/n", lambda old: old)

    on(MemoryTree(), scenario)


def test_an_update_keeps_unknown_keys_and_may_change_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.create("/n", b'{"known":1,"later":[2]}')
        assert await update_document(store, "/n", lambda old: old | {"known": 3}) == {"known": 3, "later": [2]}
        assert await update_document(store, "/n", lambda _: None) == {"known": 3, "later": [2]}
        found = await read_document(store, "/n")
        assert found == Document({"known": 3, "later": [2]}, found.version if found else None)
        assert (await store.get("/n")).stat.version == 1

    on(MemoryTree(), scenario)


def test_an_update_that_meets_other_writers_sees_their_values() -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.create("/n", b'{"n":0}')
        seen = await interrupted_update(store, interruptions=3)
        assert seen == [0, 100, 101, 102]
        assert (await store.get("/n")).data == b'{"n":103}'

    on(MemoryTree(), scenario)


def test_an_update_that_always_meets_other_writers_is_a_conflict() -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.create("/n", b'{"n":0}')
        with pytest.raises(Conflict, match=f"/n was changed by other clients {UPDATE_ROUNDS_MAX} times"):
            await interrupted_update(store, interruptions=UPDATE_ROUNDS_MAX)

    on(MemoryTree(), scenario)


async def interrupted_update(store: MemoryStore, interruptions: int) -> list[int]:
    """Increments `n` while another client writes 100, 101, … before so many of the writes; returns what it saw."""
    seen: list[int] = []
    values = iter(range(100, 100 + interruptions))

    async def write_first(operation: str, path: str) -> None:
        if operation == "set" and (value := next(values, None)) is not None:
            store.before = None
            await store.overwrite("/n", encode_json({"n": value}))
            store.before = write_first

    def change(old: Json) -> Json:
        seen.append(old["n"])
        return {"n": old["n"] + 1}

    store.before = write_first
    await update_document(store, "/n", change)
    return seen
