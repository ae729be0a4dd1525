"""Frames captured between Java's broker and official clients."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any, NamedTuple

from bkctl.codec.pulsar import Command
from tests.golden import FOLDER


class Frame(NamedTuple):
    """One frame of a capture."""

    scenario: str
    conn: int
    sender: str
    command: str
    fields: dict[str, Any]
    raw: bytes
    time: float


@cache
def frames() -> list[Frame]:
    with gzip.open(FOLDER / "pulsar/wire.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        Frame(
            f"{r['variant']}/{r['scenario']}",
            r["conn"],
            r["from"],
            r["cmd"],
            r["fields"],
            bytes.fromhex(r["hex"]),
            r["t"],
        )
        for r in rows
        if "hex" in r and r["cmd"] in Command.__members__
    ]


def split(raw: bytes) -> tuple[bytes, bytes]:
    """A frame's command and what follows it."""
    size = int.from_bytes(raw[4:8], "big")
    return raw[8 : 8 + size], raw[8 + size :]
