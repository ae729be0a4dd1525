"""What fails a run: severities, budgets, suppressions; and what a suppression file may say."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from bkinspect.audit.contract import (
    Contract,
    FailOn,
    Kind,
    Suppression,
    judge,
    marked,
    matched_numbers,
    parse_budgets,
    parse_fail_on,
    read_suppressions,
)
from bkinspect.audit.schemas import FINDINGS

from bkctl.errors import NotFound, UsageError

DAY_MS = 86_400_000
AS_OF_MS = 20_000 * DAY_MS
"""2024-10-04."""
KINDS = [
    Kind("BKC401", "error", False, 2),
    Kind("BKC411", "warning", False, 30),
    Kind("BKC411", "warning", True, 5),
    Kind("BKC406", "info", False, 9),
]


@pytest.mark.parametrize(
    ("fail_on", "budgets", "failing", "allowed"),
    [
        ("warning", {}, {"BKC401": 2, "BKC411": 30}, {}),
        ("error", {}, {"BKC401": 2}, {}),
        ("warning", {"BKC411": 30}, {"BKC401": 2}, {"BKC411": 30}),
        ("warning", {"BKC411": 29}, {"BKC401": 2, "BKC411": 30}, {}),
        ("error", {"BKC401": 2}, {}, {"BKC401": 2}),
        ("error", {"BKC401": 1}, {"BKC401": 2}, {}),
    ],
)
def test_findings_at_or_above_the_severity_and_over_the_budget_fail_a_run(
    fail_on: str, budgets: dict[str, int], failing: dict[str, int], allowed: dict[str, int]
) -> None:
    verdict = judge(Contract(parse_fail_on(fail_on), budgets), KINDS)
    assert (verdict.failing, verdict.allowed, verdict.suppressed) == (failing, allowed, {"BKC411": 5})
    assert verdict.failed is bool(failing)


def test_findings_of_severity_info_alone_do_not_fail_a_run() -> None:
    assert not judge(Contract(), [Kind("BKC406", "info", False, 9)]).failed


def test_budgets_are_read_by_code() -> None:
    assert parse_budgets(["BKC411=30", "bkc401=0"]) == {"BKC411": 30, "BKC401": 0}


@pytest.mark.parametrize(
    "given",
    [["BKC411=-1"], ["BKC411"], ["BKC411="], ["BKC411=many"], ["BKC999=1"], ["=1"], ["BKC411=1", "bkc411=2"]],
)
def test_a_budget_that_is_not_valid_is_a_usage_error(given: list[str]) -> None:
    with pytest.raises(UsageError, match="--allow"):
        parse_budgets(given)


@pytest.mark.parametrize("text", ["never", "info", "", "ERROR"])
def test_another_severity_to_fail_on_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-on"):
        parse_fail_on(text)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


ENTRY = """[[suppress]]
code = "bkc411"
ledger_id = 5
bookie_id = "b1:3181"
subject = "ledger 5"
reason = "OPS-1"
expires = 2026-12-31
"""


def test_a_suppression_file_is_read_in_order(tmp_path: Path) -> None:
    short = '[[suppress]]\ncode = "BKC401"\nreason = "OPS-2"\nexpires = 2026-01-01\n'
    first, second = read_suppressions(written(tmp_path / "s.toml", ENTRY + short))
    assert first == Suppression(1, "BKC411", "OPS-1", date(2026, 12, 31), 5, "b1:3181", "ledger 5")
    assert second == Suppression(2, "BKC401", "OPS-2", date(2026, 1, 1))
    assert read_suppressions(written(tmp_path / "empty.toml", "")) == ()


@pytest.mark.parametrize(
    ("line", "other", "expected", "found"),
    [
        ('reason = "OPS-1"', "", "text that says why", "nothing"),
        ('reason = "OPS-1"', 'reason = " "', "text that says why", "' '"),
        ("expires = 2026-12-31", "", "a date as 2026-12-31", "nothing"),
        ("expires = 2026-12-31", 'expires = "2026-12-31"', "a date as 2026-12-31", "'2026-12-31'"),
        ("expires = 2026-12-31", "expires = 2026-12-31T00:00:00Z", "a date as 2026-12-31", "datetime"),
        ('code = "bkc411"', "", "a code as BKC411", "nothing"),
        ('code = "bkc411"', 'code = "BKC999"', "a code as BKC411", "'BKC999'"),
        ("ledger_id = 5", "ledger_id = -1", "a ledger id", "-1"),
        ("ledger_id = 5", "ledger_id = true", "a ledger id", "True"),
        ("ledger_id = 5", "ledger_id = 9223372036854775808", "a ledger id", "9223372036854775808"),
        ('bookie_id = "b1:3181"', "bookie_id = 1", "text", "1"),
        ('subject = "ledger 5"', 'subjects = "ledger 5"', "one of code, ledger_id", "subjects"),
    ],
)
def test_an_entry_that_is_not_valid_names_file_line_and_entry(
    line: str, other: str, expected: str, found: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "s.toml", ENTRY + "\n" + ENTRY.replace(line, other))
    with pytest.raises(UsageError) as caught:
        read_suppressions(path)
    message = caught.value.message
    assert message.startswith(f"{path}, line 9, entry 2, ")
    assert f"expected {expected}" in message
    assert f"found {found}" in message
    assert (caught.value.details["line"], caught.value.details["entry"]) == (9, 2)


@pytest.mark.parametrize("text", ["[[suppress", "suppress = 1", "suppress = [1]", "[suppress]\ncode = 1", "other = 1"])
def test_a_file_of_another_form_is_a_usage_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"s\.toml.*expected.*found"):
        read_suppressions(written(tmp_path / "s.toml", text))


def test_a_suppression_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_suppressions(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot read"):
        read_suppressions(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(UsageError, match="cannot read"):
        read_suppressions(tmp_path / "latin.toml")


def test_a_suppression_takes_effect_until_the_end_of_its_last_day() -> None:
    last = Suppression(1, "BKC411", "OPS-1", date(2024, 10, 4))
    contract = Contract(FailOn.WARNING, {}, (last,), Path("s.toml"))
    assert contract.in_effect(AS_OF_MS) == (last,)
    assert contract.in_effect(AS_OF_MS + DAY_MS - 1) == (last,)
    assert contract.in_effect(AS_OF_MS + DAY_MS) == ()


def test_notes_name_expired_and_unused_suppressions() -> None:
    contract = Contract(
        FailOn.WARNING,
        {},
        (
            Suppression(1, "BKC411", "OPS-1", date(2024, 10, 3), 5),
            Suppression(2, "BKC412", "OPS-2", date(2024, 10, 4)),
            Suppression(3, "BKC401", "OPS-3", date(2024, 10, 4), bookie_id="b1:3181"),
        ),
        Path("s.toml"),
    )
    assert contract.notes(AS_OF_MS, {2}) == [
        "s.toml: suppression 1 (BKC411, 5) expired on 2024-10-03; its findings are not suppressed",
        "s.toml: suppression 3 (BKC401, b1:3181) matches no finding",
    ]


@pytest.mark.slow
def test_the_first_matching_suppression_marks_a_finding(spark: Any) -> None:
    rows = [
        {"code": "BKC411", "ledger_id": 5, "bookie_id": "b1:3181", "subject": "ledger 5"},
        {"code": "BKC411", "ledger_id": 6, "bookie_id": None, "subject": "ledger 6"},
        {"code": "BKC412", "ledger_id": 5, "bookie_id": None, "subject": "ledger 5"},
        {"code": "BKC401", "ledger_id": None, "bookie_id": None, "subject": 'a "quoted" \\ subject'},
    ]
    values = [tuple(row.get(name) for name in FINDINGS.names) for row in rows]
    found = spark.createDataFrame(values, FINDINGS.ddl)
    expires = date(2024, 10, 4)
    suppressions = (
        Suppression(1, "BKC411", "one bookie", expires, bookie_id="b1:3181"),
        Suppression(2, "BKC411", "one ledger", expires, ledger_id=5),
        Suppression(3, "BKC401", "a subject", expires, subject='a "quoted" \\ subject'),
        Suppression(4, "BKC412", "another ledger", expires, ledger_id=6),
    )
    result = marked(found, suppressions)
    assert [row["suppressed"] for row in result.collect()] == ["one bookie", None, None, "a subject"]
    assert matched_numbers(result, suppressions) == {1, 2, 3}
    assert [row["suppressed"] for row in marked(found, ()).collect()] == [None] * 4
    assert matched_numbers(marked(found, ()), ()) == set()
