from __future__ import annotations

import io
from pathlib import Path

import pytest

from bkctl.cli.names import expand, ledger_ids
from bkctl.errors import NotFound, UsageError


def test_names_from_everywhere(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("7\n\n 8 \n")
    stdin = io.BytesIO(b"0x1f\n")
    assert list(ledger_ids(["1", f"@{tmp_path / 'ids'}", "-"], stdin)) == [1, 7, 8, 31]


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(expand([f"@{tmp_path / 'none'}"], io.BytesIO()))
    with pytest.raises(UsageError):
        list(expand(["-"], io.BytesIO(b"\xff\n")))
    with pytest.raises(UsageError):
        list(ledger_ids(["five"], io.BytesIO()))
