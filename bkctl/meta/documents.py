"""Pulsar's JSON nodes: read as dictionaries, written with unknown keys kept, by compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from bkctl.errors import Conflict, Corrupt, NotFound
from bkctl.meta.store import MetadataStore, Version

UPDATE_ROUNDS_MAX: Final = 20  # compare-and-set rounds lost to others before giving up

Json: TypeAlias = dict[str, Any]


class Document(NamedTuple):
    """A JSON object and the version of its node."""

    value: Json
    version: Version


def encode_json(value: Mapping[str, Any]) -> bytes:
    """As Jackson writes it: no blanks, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(data: bytes, *, source: str) -> Json:
    """The object in a node; an empty node is an empty object.

    Raises:
        Corrupt: it is not a JSON object.
    """
    try:
        value = json.loads(data or b"{}")
    except ValueError as e:
        raise Corrupt("not JSON", source=source, offset=0, expected="an object", found=str(e)) from None
    if not isinstance(value, dict):
        raise Corrupt("not a JSON object", source=source, offset=0, expected="an object", found=type(value).__name__)
    return value


async def read_document(store: MetadataStore, path: str) -> Document | None:
    """The node's object, or None if the node does not exist."""
    try:
        node = await store.get(path)
    except NotFound:
        return None
    return Document(decode_json(node.data, source=path), node.stat.version)


async def update_document(store: MetadataStore, path: str, change: Callable[[Json], Json | None]) -> Json:
    """Changes the node by compare-and-set: `change` sees a copy of what is there, and again after each conflict.

    It returns the new object, or None to leave it as it is.

    Raises:
        NotFound: the node does not exist. Conflict: other clients changed it every time.
    """
    for _ in range(UPDATE_ROUNDS_MAX):
        node = await store.get(path)
        old = decode_json(node.data, source=path)
        new = change(dict(old))
        if new is None:
            return old
        try:
            await store.set(path, encode_json(new), node.stat.version)
        except Conflict:
            continue
        return new
    raise Conflict(f"{path} was changed by other clients {UPDATE_ROUNDS_MAX} times", path=path)
