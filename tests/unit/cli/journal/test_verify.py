"""`bkctl journal verify`: findings in journals and marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.golden import Golden


def test_a_bookie_of_java_has_no_findings(golden: Golden, bookie: Path, tmp_path: Path) -> None:
    answer = bkctl("journal", "verify", golden.bookie("bookie0"), "-v", "-o", "json")
    assert (answer.code, answer.json()["items"], "journals" in answer.stderr) == (0, [], True)
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory = {bookie / 'journal'}\nledgerDirectories={bookie / 'ledgers'}\n")
    assert bkctl("journal", "verify", "-c", conf).code == 0


def codes(folder: Path) -> list[str]:
    """The codes of the findings, of which there is at least one."""
    answer = bkctl("journal", "verify", folder, "-o", "json")
    assert answer.code == 1
    return [item["code"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    ("offset", "changed", "code"), [(14, b"\x02\x01", "BKC207"), (7, b"\x01", "BKC206")], ids=["offset", "journal"]
)
def test_a_mark_that_no_journal_has_is_a_finding(
    golden: Golden, tmp_path: Path, offset: int, changed: bytes, code: str
) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    mark = folder / "ledgers/current/lastMark"
    data = mark.read_bytes()
    mark.write_bytes(data[:offset] + changed + data[offset + len(changed) :])
    assert codes(folder) == [code]


def test_a_damaged_record_is_a_finding(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    with (folder / "journal/current/1a1fc11aece.txn").open("r+b") as file:
        file.seek(700)
        file.write(b"\xff" * 8)
    assert {"BKC203", "BKC204"} & set(codes(folder))
    answer = bkctl("journal", "verify", folder / "journal")
    assert (answer.code, "BKC20" in answer.stdout) == (1, True)
