"""What the verbs that read a bookie's files share: paths, configurations, digests, findings on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.cli import offline
from bkctl.meta.memory import MemoryTree
from tests.command_line import Answer, bkctl
from tests.golden import Golden
from tests.unit.cli.golden_tree import golden_tree


@pytest.fixture
def logs(golden: Golden) -> Path:
    return golden.bookie("bookie1") / "ledgers"


def test_a_log_is_found_by_its_file_its_id_and_the_configuration(golden: Golden, logs: Path, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"ledgerDirectories={logs}\nzkServers=nowhere:1\n")
    expected = bkctl("entrylog", "scan", logs / "current/5.log", "-o", "jsonl").rows()
    assert len(expected) == 433
    for arguments in ([logs, "5"], [logs / "current", "0x5"], ["-c", conf, "5.log"], ["-c", conf, "5"]):
        assert bkctl("entrylog", "scan", *arguments, "-o", "jsonl").rows() == expected


@pytest.mark.parametrize(
    ("verb", "words", "code"),
    [
        (("entrylog", "scan"), (), 2),
        (("entrylog", "scan"), ("7",), 4),
        (("entrylog", "scan"), ("none.log",), 4),
        (("entrylog", "scan"), ("empty",), 4),
        (("entrylog", "show"), ("empty",), 4),
        (("journal", "read"), ("empty",), 4),
        (("journal", "verify"), ("empty",), 4),
    ],
)
def test_a_path_without_files_is_one_error(
    verb: tuple[str, str], words: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    answer = bkctl(*verb, *words)
    assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (code, "", 1)


def test_the_newer_key_of_a_configuration_is_used(golden: Golden, tmp_path: Path) -> None:
    journal = golden.bookie("bookie1") / "journal"
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectory = /nonexistent\njournalDirectories={journal},\n")
    names = bkctl("journal", "list", "-c", conf, "-o", "name")
    assert (names.code, len(names.stdout.splitlines())) == (0, 2)
    lost = tmp_path / "lost"
    conf.write_text(f"journalDirectory = {lost}\n")
    missing = bkctl("journal", "list", "-c", conf)
    assert (missing.code, missing.stdout, str(lost) in missing.stderr) == (4, "", True)


def test_digest_types_and_passwords_come_from_metadata(golden: Golden) -> None:
    """With metadata every entry of the manifest's ledgers is checked, those with a MAC too."""
    tree = golden_tree()
    for name in ("bookie0", "bookie1", "bookie4", "bookie5"):
        folder = golden.bookie(name)
        known = {ledger.id for ledger in golden.ledgers().values() if not ledger.deleted}
        rows = bkctl("entrylog", "scan", folder, "--with-metadata", "-o", "jsonl", tree=tree).rows()
        entries = [row for row in rows if row["kind"] == "entry" and row["ledger_id"] in known]
        assert entries
        assert {row["digest_ok"] for row in entries} == {True}
        assert bkctl("journal", "verify", folder, "--with-metadata", tree=tree).code == 0
    assert bkctl("entrylog", "scan", folder, "--with-metadata", tree=MemoryTree()).code == 4
    assert bkctl("entrylog", "scan", folder, "--with-metadata").code == 2


def test_a_password_may_come_from_a_file_or_the_environment(golden: Golden, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret")
    scan = ("entrylog", "scan", golden.bookie("bookie1"), "--ledger", "1", "-o", "jsonl")

    def checked(answer: Answer) -> set[bool | None]:
        return {row["digest_ok"] for row in answer.rows()}

    assert checked(bkctl(*scan)) == {None}
    assert checked(bkctl(*scan, "--password-file", file)) == {True}
    assert checked(bkctl(*scan, environ={"BKCTL_LEDGER_PASSWORD": "s3cret"})) == {True}


def test_warnings_of_a_document_are_limited_but_stderr_has_all(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "WARNINGS_MAX", 1)
    whole = (golden.bookie("bookie0") / "ledgers/current/0.log").read_bytes()
    for name in ("0.log", "1.log"):
        (tmp_path / name).write_bytes(whole[:5000])
    answer = bkctl("entrylog", "scan", tmp_path, "--on-error", "resume", "-o", "json")
    assert (answer.code, len(answer.json()["warnings"])) == (1, 1)
    assert len(answer.stderr.splitlines()) == 2
