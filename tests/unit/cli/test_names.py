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


def test_arguments_are_literal_and_lines_are_unescaped(tmp_path: Path) -> None:
    (tmp_path / "names").write_bytes(b"b\\nx\r\n\\x1b[31m\n\\x20a b\\x20\n\\\\n\n-\n@x\n\xc2\xa0\n")
    found = list(expand(["a\\nb", f"@{tmp_path / 'names'}"], io.BytesIO()))
    assert found == ["a\\nb", "b\nx", "\x1b[31m", " a b ", "\\n", "-", "@x", "\xa0"]


@pytest.mark.parametrize("line", [b"a\\q", b"a\\", b"\\x1", b"\\U00110000"])
def test_an_invalid_escape_is_refused_with_its_line(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stdin, line 2: invalid escape"):
        list(expand(["-"], io.BytesIO(b"plain\n" + line + b"\n")))
    (tmp_path / "f").write_bytes(line)
    with pytest.raises(UsageError, match="f, line 1: invalid escape"):
        list(expand([f"@{tmp_path / 'f'}"], io.BytesIO()))


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(expand([f"@{tmp_path / 'none'}"], io.BytesIO()))
    with pytest.raises(UsageError):
        list(expand(["-"], io.BytesIO(b"\xff\n")))
    with pytest.raises(UsageError):
        list(ledger_ids(["five"], io.BytesIO()))
