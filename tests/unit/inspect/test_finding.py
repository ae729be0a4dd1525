"""Findings have the fields of the contract, and every code has its paragraph."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from bkinspect import finding
from bkinspect.finding import CODES, Finding, explain

from bkctl.errors import NotFound


def test_fields_are_those_of_the_contract() -> None:
    assert [f.name for f in dataclasses.fields(Finding)] == (
        [
            "code",
            "severity",
            "subject",
            "message",
            "evidence",
            "next",
            "ledger_id",
            "entry_id",
            "bookie_id",
            "file",
            "offset",
        ]
    )


def test_every_code_is_explained_and_used() -> None:
    folder = Path(finding.__file__).parent
    used = {
        code
        for path in folder.rglob("*.py")
        if path.name not in ("finding.py", "audit_codes.py")
        for code in re.findall(r'"(BKC\d{3})"', path.read_text())
    }
    assert used <= CODES.keys()
    for code, known in CODES.items():
        assert re.fullmatch(r"BKC\d{3}", code)
        assert explain(code.lower()) is known
        assert len(known.text) > 80
        assert code in used, f"nothing finds {code}"
        assert known.next
    with pytest.raises(NotFound, match="BKC999"):
        explain("BKC999")
