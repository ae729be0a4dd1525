"""`bkctl journal list`: journals by directory, configuration and name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import bkctl


def test_journals_are_listed_with_their_version(bookie: Path) -> None:
    items = bkctl("journal", "list", bookie, "-o", "json").json()["items"]
    assert [(item["journal_id"], item["version"]) for item in items] == [(1795230381180, 6), (1795230381181, 6)]


@pytest.mark.parametrize("name", ["1a1fc11b47d.txn", "0x1a1fc11b47d", "1795230381181"])
def test_a_journal_is_found_by_every_form_of_its_id(bookie: Path, tmp_path: Path, name: str) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory = {bookie / 'journal'}\nledgerDirectories={bookie / 'ledgers'}\n")
    expected = bkctl("journal", "read", bookie / "journal/current/1a1fc11b47d.txn", "-o", "jsonl").rows()
    assert expected
    assert bkctl("journal", "read", "-c", conf, name, "-o", "jsonl").rows() == expected


def test_an_empty_directory_is_an_empty_list(tmp_path: Path) -> None:
    answer = bkctl("journal", "list", tmp_path, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
