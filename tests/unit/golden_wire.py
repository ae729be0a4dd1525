"""Frames captured between Java's own client and bookies, and hand-made ones with Java's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "data/golden/wire"


class Frame(NamedTuple):
    """One captured frame; data has its length prefix."""

    file: str
    number: int
    connection: int
    from_client: bool
    data: bytes
    decoded: dict[str, Any]

    @property
    def protocol(self) -> int:
        return 2 if self.decoded["protocol"] == "v2" else 3


def frames(pattern: str = "*.jsonl") -> list[Frame]:
    """Every captured frame, and the short frames of the hand-made cases that Java could decode."""
    found = []
    for path in sorted(FOLDER.glob(pattern)):
        for row in map(json.loads, path.read_text().splitlines()):
            if "hex" in row:
                from_client = row["dir"].startswith("client")
                data = bytes.fromhex(row["hex"])
                found.append(Frame(path.name, row["n"], row["conn"], from_client, data, row["decoded"]))
            for reply in row.get("replies", ()):
                if isinstance(reply["hex"], str):
                    data = bytes.fromhex(reply["hex"])
                    found.append(Frame(path.name, 0, 0, False, data, reply["decoded"]))
    return found


def raw_cases() -> list[dict[str, Any]]:
    """The hand-made cases: case, sent, replies, closed."""
    return [json.loads(line) for line in (FOLDER / "raw_frames.jsonl").read_text().splitlines()]
