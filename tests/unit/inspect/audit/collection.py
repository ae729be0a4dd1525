"""Collections, runs over them, and their findings in a comparable form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkinspect.audit.collected import Manifest, newest_manifests
from bkinspect.audit.collector import Collection, Outcome, RateLimit, collect
from bkinspect.audit.results import opened
from bkinspect.audit.schemas import FINDINGS
from bkinspect.audit.storage import LocalStorage

from tests.audit_truth.cluster import BOOKIES, Cluster, Ledger
from tests.golden import FOLDER

ZK_TREE = str(FOLDER / "zk_tree.json")
SEED = 20261123


def collected(folder: Path, to: Path, metadata: object = None, **options: Any) -> Outcome:
    limit = options.pop("limit", None) or RateLimit(None)
    stage = options.pop("stage", lambda _: None)
    request = Collection((folder,), LocalStorage.of(to), metadata and str(metadata), **options)
    return collect(request, limit, stage)


def found(to: Path) -> list[tuple[object, ...]]:
    with opened(to) as results:
        return sorted((finding(item) for item in results.findings()), key=repr)


def finding(row: Any) -> tuple[object, ...]:
    """A finding's fields; lists in its evidence are in no order."""
    values = {name: row[name] for name in FINDINGS.names}
    evidence = values["evidence"]
    evidence = json.loads(evidence) if isinstance(evidence, str) else evidence
    values["evidence"] = sorted(
        (name, sorted(map(str, value)) if isinstance(value, list) else str(value)) for name, value in evidence.items()
    )
    return tuple(values.values())


def scanned(outcome: list[str]) -> set[str]:
    """Names of the files that a collection has read, from its stages."""
    return {Path(stage.removeprefix("scan ")).name for stage in outcome if stage.startswith("scan ")}


def small_cluster(folder: Path) -> tuple[Cluster, Ledger, Path]:
    """A healthy cluster of two ledgers on the first two bookies."""
    cluster = Cluster(SEED)
    cluster.folder = folder
    first, _ = (cluster.ledger((2, 2, 1), ensemble=BOOKIES[:2]) for _ in range(2))
    cluster.encode()
    folder.mkdir()
    return cluster, first, cluster.write(folder)


def manifests(uri: Path) -> Iterator[Manifest]:
    found, _ = newest_manifests(LocalStorage.of(uri))
    return (manifest for _, manifest in found)
