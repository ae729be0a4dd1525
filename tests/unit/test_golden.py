"""The golden data is whole: every archive has the files and sizes that its manifest names."""

from __future__ import annotations

import pytest

from tests.golden import ALL, Golden


@pytest.mark.parametrize("name", ALL)
def test_archive_holds_what_the_manifest_says(golden: Golden, name: str) -> None:
    folder = golden.bookie(name)
    found = {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    assert found == golden.bookie_row(name)["files"]
