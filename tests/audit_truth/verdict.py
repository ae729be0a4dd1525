"""Findings against what was broken: what was missed, and what was found that nobody broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.audit_truth.cluster import Cluster
from tests.audit_truth.faults import FAULTS, Break, Expected, Fault, noise

Key = tuple[Any, ...]
KEY = ("code", "ledger_id", "entry_id", "bookie_id", "file", "offset")


@dataclass
class Broken:
    """A cluster on disk, what is wrong with it by the names of faults, and where its nodes are."""

    cluster: Cluster
    export: Path
    expected: list[tuple[str, Expected]]


def broken(seed: int, rounds: int, folder: Path, faults: Iterable[Fault] = FAULTS) -> Broken:
    """Every fault `rounds` times, in one cluster with what healthy clusters have."""
    cluster = Cluster(seed)
    cluster.folder = folder
    breaks: list[tuple[str, Break]] = [(fault.__name__, fault(cluster)) for _ in range(rounds) for fault in faults]
    noise(cluster)
    cluster.encode()
    expected = []
    for name, act in breaks:
        found = act()
        expected += [(name, one) for one in (found if isinstance(found, list) else [found])]
    folder.mkdir()
    return Broken(cluster, cluster.write(folder), expected)


def compare(expected: list[tuple[str, Expected]], found: Iterable[Any]) -> tuple[list[object], list[Key]]:
    """(faults without their finding, findings without a fault); each finding answers one fault."""
    left: Counter[Key] = Counter(tuple(row[name] for name in KEY) for row in found)
    missed: list[object] = []
    for name, one in expected:
        key = next((key for key in left if left[key] and _fits(key, one)), None)
        if key is None:
            missed.append((name, one))
        else:
            left[key] -= 1
    return missed, sorted(left.elements(), key=str)


def _fits(key: Key, one: Expected) -> bool:
    if one.offset is not None and one.offset_end is not None:
        return key[:5] == tuple(one[:5]) and key[5] is not None and one.offset <= key[5] <= one.offset_end
    return key == tuple(one[:6])
