"""What all checks share: rows of findings from rows of facts, written as SQL expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bkinspect.audit.schemas import FINDINGS
from bkinspect.finding import CODES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPES = {column.name: column.type for column in FINDINGS.columns}


def text_of(binary: str) -> str:
    """SQL for bytes that any client may have written: the text if they are UTF-8, else their base64."""
    return f"coalesce(try_validate_utf8(cast({binary} as string)), base64({binary}))"


def findings_of(
    rows: DataFrame,
    code: str,
    *,
    subject: str,
    message: str,
    evidence: Mapping[str, str] | None = None,
    severity: str | None = None,
    **places: str,
) -> DataFrame:
    """One finding a row. All texts are SQL expressions over the row; places are ledger_id, file and so on.

    severity: an expression too; None for that of the code.
    """
    fields = [F.expr(expression).alias(name) for name, expression in (evidence or {}).items()]
    columns: dict[str, Column] = {
        "code": F.lit(code),
        "severity": F.expr(severity) if severity else F.lit(str(CODES[code].severity)),
        "subject": F.expr(subject),
        "message": F.expr(message),
        "evidence": F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("{}"),
        "next": F.lit(CODES[code].next),
        **{name: F.expr(expression) for name, expression in places.items()},
    }
    return rows.select(*(columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _TYPES.items()))


def union(first: DataFrame, *others: DataFrame) -> DataFrame:
    """All of these findings, one under another."""
    for other in others:
        first = first.unionByName(other)
    return first
