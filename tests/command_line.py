"""Runs bkctl inside the test's process, with streams and an environment of the test's own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bkctl.cli import main
from bkctl.cli.env import Env
from bkctl.meta.memory import MemoryStore, MemoryTree

DEFAULT_ENVIRON = {"HOME": "/nonexistent"}
"""The environment where a test gives none; a fixture may add to it for the time of a test."""


async def _open_memory(tree: MemoryTree, uri: str, timeout_s: float) -> MemoryStore:
    return MemoryStore(tree)


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str
    raw: bytes

    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.stdout)

    def rows(self) -> list[Any]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def error(self) -> Any:
        """The error object on stderr (with -o json)."""
        return json.loads(self.stderr.splitlines()[-1])["error"]


def bkctl(
    *arguments: str | Path | int,
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
    tree: MemoryTree | None = None,
) -> Answer:
    """Runs `bkctl ARGUMENTS…`; nothing of the real environment is seen (HOME is /nonexistent unless given).

    With a tree, the metadata store is that one in memory, whatever -m says (it may be left out).
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    env = Env(io.BytesIO(stdin), out, err, {**DEFAULT_ENVIRON, **(environ or {})})
    if tree is not None:
        env.environ = {"BKCTL_METADATA_URI": "zk://memory:2181/ledgers", **env.environ}
        env.store_opener = partial(_open_memory, tree)
    code = main([str(a) for a in arguments], env)
    raw, words = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
    return Answer(code, raw.decode("utf-8", "replace"), words.decode("utf-8", "replace"), raw)
