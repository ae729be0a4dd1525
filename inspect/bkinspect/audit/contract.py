"""Decides whether a run fails: the lowest severity that fails it, budgets by code, and suppressions with a reason.

    [[suppress]]
    code = "BKC411"              # required
    ledger_id = 5                # optional, as bookie_id and subject: without them the entry matches every finding
    reason = "OPS-1234: deleted with the tenant"
    expires = 2026-12-31         # the last day (UTC) on which the entry takes effect

Suppressed findings stay in the table `findings`, with the reason in the column `suppressed`, and do not fail the run.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import NotFound, UsageError
from bkinspect.finding import CODES, Severity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUPPRESSIONS_MAX: Final = 10_000
"""Entries of a suppression file: each is compared with each finding of its code."""
_BUDGET: Final = re.compile(r"([^=]+)=([0-9]{1,18})")
_HEADER: Final = re.compile(r"^\s*\[\[\s*suppress\s*\]\]", re.MULTILINE)
_TABLE: Final = "suppress"
_LEDGER_ID_MAX: Final = (1 << 63) - 1
_SPARK_TYPE: Final = (
    "array<struct<number:int,code:string,ledger_id:bigint,bookie_id:string,subject:string,reason:string>>"
)


@unique
class FailOn(StrEnum):
    """The lowest severity of findings that fail a run. Findings of severity info never fail it."""

    ERROR = "error"
    WARNING = "warning"

    @property
    def severities(self) -> frozenset[str]:
        """The severities that fail a run."""
        return frozenset((Severity.ERROR,) if self is FailOn.ERROR else (Severity.ERROR, Severity.WARNING))


@dataclass(frozen=True, slots=True)
class Suppression:
    """An entry of a suppression file.

    number: its position in the file, from 1. expires: the last day, in UTC, on which it takes effect.
    """

    number: int
    code: str
    reason: str
    expires: date
    ledger_id: int | None = None
    bookie_id: str | None = None
    subject: str | None = None

    @property
    def words(self) -> str:
        """The entry as one line of text."""
        places = (self.code, self.ledger_id, self.bookie_id, self.subject)
        return f"suppression {self.number} ({', '.join(str(place) for place in places if place is not None)})"


@dataclass(frozen=True, slots=True)
class Contract:
    """The conditions under which a run fails.

    budgets: code → findings that are allowed; file: the file from which the suppressions were read.
    """

    fail_on: FailOn = FailOn.WARNING
    budgets: Mapping[str, int] = field(default_factory=dict)
    suppressions: tuple[Suppression, ...] = ()
    file: Path | None = None

    def in_effect(self, as_of_ms: int) -> tuple[Suppression, ...]:
        """Returns the suppressions that have not expired at this time."""
        today = _day(as_of_ms)
        return tuple(one for one in self.suppressions if one.expires >= today)

    def notes(self, as_of_ms: int, used: Iterable[int]) -> list[str]:
        """Returns a note for each suppression that has expired or matches no finding.

        Args:
            as_of_ms: the start of the run.
            used: numbers of the suppressions that match a finding.
        """
        today = _day(as_of_ms)
        notes = [
            f"{self.file}: {one.words} expired on {one.expires}; its findings are not suppressed"
            for one in self.suppressions
            if one.expires < today
        ]
        matched = set(used)
        unused = [one.words for one in self.in_effect(as_of_ms) if one.number not in matched]
        return [*notes, *(f"{self.file}: {words} matches no finding" for words in unused)]


@dataclass(frozen=True, slots=True)
class Kind:
    """The number of findings with the same code and severity, either suppressed or not."""

    code: str
    severity: str
    suppressed: bool
    count: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run under its contract.

    failing: code → findings that fail the run; allowed: code → findings within a budget; suppressed: code → suppressed
    findings.
    """

    failing: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[str, int] = field(default_factory=dict)
    suppressed: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True if the run ends with exit code 1."""
        return bool(self.failing)


def judge(contract: Contract, kinds: Iterable[Kind]) -> Verdict:
    """Returns the verdict on a run's findings: a code over its budget fails the run with all of its findings."""
    serious: dict[str, int] = {}
    suppressed: dict[str, int] = {}
    for kind in kinds:
        if kind.suppressed:
            suppressed[kind.code] = suppressed.get(kind.code, 0) + kind.count
        elif kind.severity in contract.fail_on.severities:
            serious[kind.code] = serious.get(kind.code, 0) + kind.count
    within = {code: count for code, count in serious.items() if count <= contract.budgets.get(code, 0)}
    failing = {code: count for code, count in serious.items() if code not in within}
    return Verdict(failing, within, suppressed)


def parse_fail_on(text: str) -> FailOn:
    """Returns the severity that --fail-on names.

    Raises:
        UsageError: the text is not a severity that can fail a run.
    """
    try:
        return FailOn(text)
    except ValueError:
        raise UsageError(f"--fail-on {text}", hint="one of " + ", ".join(FailOn)) from None


def parse_budgets(given: Sequence[str]) -> dict[str, int]:
    """Returns the budgets of --allow CODE=N, by code.

    Raises:
        UsageError: the code does not exist or is given twice, or N is not a number of findings.
    """
    budgets: dict[str, int] = {}
    for text in given:
        match = _BUDGET.fullmatch(text)
        if match is None:
            raise UsageError(f"--allow {text}: expected CODE=N, N not negative", hint="--allow BKC411=30", found=text)
        code = match[1].upper()
        if code not in CODES:
            raise UsageError(f"--allow {text}: there is no finding with the code {match[1]}", hint="--allow BKC411=30")
        if code in budgets:
            raise UsageError(f"--allow {text}: {code} is given twice")
        budgets[code] = int(match[2])
    return budgets


def read_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Returns the entries of a suppression file, in the order of the file.

    Raises:
        NotFound: the file does not exist. UsageError: it is not valid; the message has the file, the line, the entry,
            the expected value and the value that was found.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no suppression file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read suppression file {path}: {error}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: expected TOML, found: {error}", source=str(path)) from None
    entries = document.pop(_TABLE, [])
    if document:
        raise _invalid(path, None, None, "key", f"only [[{_TABLE}]]", ", ".join(sorted(document)))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _invalid(path, None, None, _TABLE, f"a list of [[{_TABLE}]]", type(entries).__name__)
    if len(entries) > SUPPRESSIONS_MAX:
        raise _invalid(path, None, None, _TABLE, f"up to {SUPPRESSIONS_MAX} entries", str(len(entries)))
    lines = [text.count("\n", 0, match.end()) + 1 for match in _HEADER.finditer(text)]
    known: Sequence[int | None] = lines if len(lines) == len(entries) else [None] * len(entries)
    return tuple(
        _suppression(path, number, line, entry)
        for number, (line, entry) in enumerate(zip(known, entries, strict=True), 1)
    )


def _suppression(path: Path, number: int, line: int | None, entry: Mapping[str, Any]) -> Suppression:
    """Checks and returns one entry.

    Raises:
        UsageError: the entry is not valid.
    """

    def check(key: str, expected: str, valid: bool) -> None:
        if not valid:
            found = repr(entry[key]) if key in entry else "nothing"
            raise _invalid(path, number, line, key, expected, found)

    def optional_text(key: str) -> str | None:
        check(key, "text", key not in entry or (isinstance(entry[key], str) and bool(entry[key])))
        return entry.get(key)

    names = ("code", "ledger_id", "bookie_id", "subject", "reason", "expires")
    for key in entry:
        if key not in names:
            raise _invalid(path, number, line, key, "one of " + ", ".join(names), key)
    code, reason, expires, ledger_id = (entry.get(key) for key in ("code", "reason", "expires", "ledger_id"))
    check("code", "a code as BKC411", isinstance(code, str) and code.upper() in CODES)
    check("reason", "text that says why", isinstance(reason, str) and bool(reason.strip()))
    check("expires", "a date as 2026-12-31, without quotes", isinstance(expires, date) and type(expires) is date)
    whole = isinstance(ledger_id, int) and not isinstance(ledger_id, bool)
    check("ledger_id", "a ledger id", "ledger_id" not in entry or (whole and 0 <= entry["ledger_id"] <= _LEDGER_ID_MAX))
    bookie_id, subject = optional_text("bookie_id"), optional_text("subject")
    return Suppression(number, str(code).upper(), str(reason).strip(), entry["expires"], ledger_id, bookie_id, subject)


def _invalid(path: Path, number: int | None, line: int | None, key: str, expected: str, found: str) -> UsageError:
    places = (str(path), f"line {line}" if line else "", f"entry {number}" if number else "", key)
    return UsageError(
        f"{', '.join(place for place in places if place)}: expected {expected}, found {found}",
        source=str(path), line=line, entry=number, expected=expected, found=found,
    )  # fmt: skip


def marked(found: DataFrame, suppressions: Sequence[Suppression]) -> DataFrame:
    """Adds the column `suppressed` to findings: the reason of the first suppression that matches, else null."""
    from pyspark.sql.functions import get, lit

    reason = get(_matching(suppressions), lit(0)).getField("reason") if suppressions else lit(None).cast("string")
    return found.withColumn("suppressed", reason)


def matched_numbers(found: DataFrame, suppressions: Sequence[Suppression]) -> set[int]:
    """Returns the numbers of the suppressions that match a finding.

    Shuffles at most one row per suppression and task.

    Args:
        found: findings with the column `suppressed`.
    """
    from pyspark.sql.functions import explode

    if not suppressions:
        return set()
    numbers = _matching(suppressions).getField("number")
    rows = found.where("suppressed IS NOT NULL").select(explode(numbers).alias("number")).distinct().collect()
    return {row["number"] for row in rows}


def _matching(suppressions: Sequence[Suppression]) -> Column:
    """Returns the column with the suppressions that match a finding: an array of structs in the order of the file."""
    from pyspark.sql.functions import col, filter, from_json, lit

    rows = [
        {
            "number": one.number,
            "code": one.code,
            "ledger_id": one.ledger_id,
            "bookie_id": one.bookie_id,
            "subject": one.subject,
            "reason": one.reason,
        }
        for one in suppressions
    ]

    def fits(one: Column) -> Column:
        condition = col("code") == one["code"]
        for name in ("ledger_id", "bookie_id", "subject"):
            condition &= one[name].isNull() | col(name).eqNullSafe(one[name])
        return condition

    return filter(from_json(lit(json.dumps(rows)), _SPARK_TYPE), fits)


def _day(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()
