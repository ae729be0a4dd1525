"""Cookies on disk that are not those of the metadata store."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkinspect.audit.checks import cookies

from tests.unit.inspect.audit.checks.memory import keys, tables_of

COOKIE = '5\nbookieHost: "b:1"\njournalDir: "/j"\nledgerDirs: "1\t/l"\ninstanceId: "one"\n'


def bookie(name: str, stored: str | None, on_disk: str | None) -> dict[str, object]:
    return {"bookie_id": name, "cookie": stored, "offline_cookie": on_disk}


def test_a_cookie_that_is_missing_or_differs_is_found_and_others_are_not(spark: Any) -> None:
    bookies = [
        bookie("same", COOKIE, COOKIE),
        bookie("not read", COOKIE, None),
        bookie("lost", None, COOKIE),
        bookie("moved", COOKIE, COOKIE.replace("/j", "/k").replace("/l", "/m")),
        bookie("foreign", COOKIE, COOKIE.replace("one", "two")),
        bookie("indexed", COOKIE, COOKIE + 'indexDirs: "1\t/i"\n'),
        bookie("other host", COOKIE, COOKIE.replace("b:1", "c:1")),
    ]
    found = cookies.findings(tables_of(spark, bookies=bookies, ledgers=[]))
    assert keys(found, "code", "bookie_id", "message") == [
        ("BKC471", "lost", "its directories have a cookie, the metadata store has none"),
        ("BKC472", "indexed", "the cookie on disk and the one in the metadata store differ in indexDirs"),
        ("BKC472", "moved", "the cookie on disk and the one in the metadata store differ in journalDir, ledgerDirs"),
        ("BKC473", "foreign", "instance id two on disk, one in the metadata store"),
    ]
    (lost,) = found.where("code = 'BKC471'").collect()
    assert json.loads(lost["evidence"]) == {"stored": None, "on_disk": COOKIE}


def test_without_metadata_no_cookie_is_missing(spark: Any) -> None:
    tables = tables_of(spark, bookies=[bookie("b", None, COOKIE)])
    assert cookies.findings(tables).collect() == []
