"""Codes of audits: each has its rows, and checks yield those that they declare."""

from __future__ import annotations

import pytest
from bkinspect.audit_codes import AUDIT_CODES, ERROR, INFO, WARNING
from bkinspect.finding import CODES


def test_codes_are_unique_ascending_and_complete() -> None:
    codes = [row[0] for row in AUDIT_CODES]
    assert len(codes) == len(set(codes))
    assert codes == sorted(codes)
    for code, severity, title, text, advice in AUDIT_CODES:
        assert severity in (ERROR, WARNING, INFO), code
        assert all((title, text, advice)), code
        assert text.endswith("."), code
        assert not title.endswith("."), code


def test_each_row_is_a_code_of_findings() -> None:
    for code, severity, title, text, advice in AUDIT_CODES:
        known = CODES[code]
        assert (str(known.severity), known.title, known.text, known.next) == (severity, title, text, advice)


def test_each_check_declares_known_codes_and_each_code_has_a_check() -> None:
    pytest.importorskip("pyspark")
    from bkinspect.audit.checks import load, names

    declared = {code for check in load(names()) for code in check.CODES}
    assert declared <= CODES.keys()
    assert {row[0] for row in AUDIT_CODES} - declared == {"BKC461"}, "of bookies that do not answer: the run reports it"
