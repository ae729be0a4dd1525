"""Findings about small files of bookies as rows of the table `damage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bkinspect.audit.schemas import DAMAGE
from bkinspect.audit.small_files import damage_rows
from bkinspect.audit.sources.directories import find_bookies

from tests.golden import Golden


def rows(folder: Path) -> list[dict[str, object]]:
    return [dict(zip(DAMAGE.names, row, strict=True)) for row in damage_rows(find_bookies([folder]))]


def test_sound_directories_of_java_have_no_rows(folder: Path) -> None:
    assert rows(folder) == []


def test_a_damaged_id_and_a_mark_without_its_journal_are_rows(folder: Path) -> None:
    last_id = next(folder.rglob("lastId"))
    last_id.write_text("nonsense\n")
    for journal in list(folder.rglob("*.txn")):
        journal.rename(journal.with_name(f"1{journal.stem}.txn"))
    found = {row["code"]: row for row in rows(folder)}
    assert set(found) == {"BKC004", "BKC206"}
    assert found["BKC004"]["file"] == str(last_id)
    gone = found["BKC206"]
    assert gone["bookie_id"] == found["BKC004"]["bookie_id"] is not None
    assert str(gone["message"]).endswith(".txn is gone")
    assert set(json.loads(str(gone["evidence"]))) == {"offset"}


@pytest.mark.parametrize("missing", ["lastMark", "VERSION"])
def test_a_missing_mark_is_legal_and_a_missing_cookie_is_a_row(golden: Golden, tmp_path: Path, missing: str) -> None:
    folder = golden.unpack("bookie0", tmp_path / missing)
    removed = next(iter(sorted(folder.rglob(f"{missing}*"))))
    for path in folder.rglob(f"{missing}*") if missing == "lastMark" else [removed]:
        path.unlink()
    assert {row["code"] for row in rows(folder)} == (set() if missing == "lastMark" else {"BKC007"})
