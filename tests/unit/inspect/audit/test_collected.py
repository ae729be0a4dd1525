"""Manifests of collectors: those of killed collections and damaged ones are not used."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.collected import MANIFEST, bookie_facts, newest_manifests
from bkinspect.audit.storage import LocalStorage

from bkctl.errors import NotFound
from tests.golden import Golden
from tests.unit.inspect.audit.collection import collected, manifests

LIMIT_S = 300


pytestmark = pytest.mark.slow


KILLED = """
import os, signal, sys
from pathlib import Path
from bkinspect.audit.collector import Collection, RateLimit, collect
from bkinspect.audit.storage import LocalStorage

def stage(name):
    global left
    left -= name.startswith(sys.argv[3])
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

left = int(sys.argv[4])
collect(Collection((Path(sys.argv[1]),), LocalStorage.of(Path(sys.argv[2])), full=True), RateLimit(None), stage)
"""


@pytest.mark.parametrize(
    ("stage", "times"), [("scan", 1), ("scan", 4), ("index", 1), ("bookie_ledgers", 1), ("damage", 1), ("manifest", 1)]
)
@pytest.mark.parametrize("earlier", [False, True])
def test_files_of_a_killed_collection_are_not_used_and_are_removed(
    stage: str, times: int, earlier: bool, golden: Golden, tmp_path: Path
) -> None:
    bookie, uri = golden.bookie("bookie0"), tmp_path / "facts"
    before = collected(bookie, uri).manifest if earlier else None
    command = [sys.executable, "-c", KILLED, str(bookie), str(uri), stage, str(times)]
    killed = subprocess.run(command, capture_output=True, timeout=LIMIT_S, cwd=Path(__file__).resolve().parents[4])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if before is not None:
        assert list(manifests(uri)) == [before]
    else:
        uri.mkdir(exist_ok=True)
        with pytest.raises(NotFound, match="no bookie was collected"):
            newest_manifests(LocalStorage.of(uri))
    outcome = collected(bookie, uri)
    assert (outcome.files_kept > 0) is earlier
    assert list(manifests(uri)) == [outcome.manifest]
    (folder,) = uri.iterdir()
    collected(bookie, uri)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    now = bookie_facts(LocalStorage.of(folder))
    named = {part.path for manifest in now.manifests for part in manifest.parts}
    assert {name for name in left if not name.endswith(MANIFEST)} - named == set(now.unreferenced)
    assert all(part in {one.path for one in outcome.manifest.parts} for part in now.unreferenced), "of the last day"


def test_manifest_whose_parts_are_damaged_is_not_used(golden: Golden, tmp_path: Path) -> None:
    uri = tmp_path / "facts"
    outcome = collected(golden.bookie("bookie0"), uri)
    (folder,) = uri.iterdir()
    part = folder / outcome.manifest.parts[0].path
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(NotFound):
        newest_manifests(LocalStorage.of(uri))
    assert collected(golden.bookie("bookie0"), uri).files_kept == 0
