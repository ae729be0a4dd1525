"""What all checks share: rows of findings from rows of facts, written as SQL expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    code: str | Sequence[str],
    *,
    subject: str,
    message: str,
    evidence: Mapping[str, str] | None = None,
    severity: str | None = None,
    **places: str,
) -> DataFrame:
    """One finding a row. All texts are SQL expressions over the row; places are ledger_id, file and so on.

    code: for rows with a column `code`, all that it may hold: one plan, where a union has one for each.
    severity: an expression too; None, and null, for that of the code.
    """
    fields = [F.expr(expression).alias(name) for name, expression in (evidence or {}).items()]
    own = {name: _of_code(code, name) for name in ("severity", "next")}
    columns: dict[str, Column] = {
        "code": F.lit(code) if isinstance(code, str) else F.col("code"),
        "severity": F.coalesce(F.expr(severity), own["severity"]) if severity else own["severity"],
        "subject": F.expr(subject),
        "message": F.expr(message),
        "evidence": F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("{}"),
        "next": own["next"],
        **{name: F.expr(expression) for name, expression in places.items()},
    }
    return rows.select(*(columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _TYPES.items()))


def _of_code(code: str | Sequence[str], name: str) -> Column:
    """What is known of a code, or of the code in each row."""
    if isinstance(code, str):
        return F.lit(str(getattr(CODES[code], name)))
    pairs = [F.lit(text) for one in code for text in (one, str(getattr(CODES[one], name)))]
    return F.create_map(*pairs)[F.col("code")]


def union(first: DataFrame, *others: DataFrame) -> DataFrame:
    """All of these findings, one under another."""
    for other in others:
        first = first.unionByName(other)
    return first
