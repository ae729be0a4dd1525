"""Cookies on disk against the cookies of the metadata store, as a bookie compares them when it starts.

Plan: one pass over the bookies; no shuffle. Without metadata, or of a running bookie, nothing is compared.
Source: Cookie.java (verify, verifyIsSuperSet), LegacyCookieValidation.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bkinspect.audit.checks._rows import findings_of, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

NAME: Final = "cookies"
CODES: Final = ("BKC471", "BKC472", "BKC473")
NEEDS: Final = ("bookies", "ledgers")
TEXT: Final = "cookies on disk are those of the metadata store; no shuffle"

_DIRECTORIES: Final = ("journalDir", "ledgerDirs", "indexDirs")


def findings(tables: Tables) -> DataFrame:
    """One for a bookie: no cookie in the store (BKC471), other directories (BKC472), another instance id (BKC473)."""
    rows = tables.bookies.where("offline_cookie is not null")
    if not tables.has("ledgers"):
        rows = rows.where("false")
    evidence = {"stored": "cookie", "on_disk": "offline_cookie"}
    place = {"bookie_id": "bookie_id"}
    missing = findings_of(
        rows.where("cookie is null"),
        "BKC471",
        subject="bookie_id",
        message="'its directories have a cookie, the metadata store has none'",
        evidence=evidence,
        **place,
    )
    changed = ", ".join(f"case when {_differs(name)} then '{name}' end" for name in _DIRECTORIES)
    directories = findings_of(
        rows.withColumn("changed", F.expr(f"concat_ws(', ', {changed})")).where("cookie is not null and changed != ''"),
        "BKC472",
        subject="bookie_id",
        message="concat('the cookie on disk and the one in the metadata store differ in ', changed)",
        evidence=evidence,
        **place,
    )
    instance = findings_of(
        rows.where(f"cookie is not null and {_differs('instanceId')}"),
        "BKC473",
        subject="bookie_id",
        message=f"concat('instance id ', {_field('offline_cookie', 'instanceId')}, ' on disk, ', "
        f"{_field('cookie', 'instanceId')}, ' in the metadata store')",
        evidence=evidence,
        **place,
    )
    return union(missing, directories, instance)


def _field(text: str, name: str) -> str:
    """SQL for a field of a cookie's text, empty where it has none."""
    return f'regexp_extract({text}, \'(^|\\n){name}: "([^"]*)"\', 2)'


def _differs(name: str) -> str:
    return f"{_field('cookie', name)} != {_field('offline_cookie', name)}"
