"""`bkctl autorecovery start`: configurations that it rejects before it runs."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import bkctl


def test_a_start_without_a_configuration_is_a_usage_error() -> None:
    answer = bkctl("autorecovery", "start", "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.error()["hint"] == "bkctl autorecovery start -c bk_server.conf"


def test_a_configuration_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("autorecovery", "start", "-c", "/nonexistent/bk_server.conf", "-o", "json")
    assert (answer.code, answer.stdout) == (4, "")
    assert "/nonexistent/bk_server.conf" in answer.error()["message"]


def test_a_value_that_is_not_valid_is_a_usage_error_that_names_the_key(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("bookiePort=many\n")
    answer = bkctl("autorecovery", "start", "-c", conf, "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert "bookiePort" in answer.error()["message"]


def test_a_metadata_store_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"zkTimeout=1000\njournalDirectory={tmp_path}/j\nledgerDirectories={tmp_path}/l\n")
    answer = bkctl("autorecovery", "start", "-c", conf, "-m", "zk+ms://127.0.0.1:1/ledgers", "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert "zk+ms" in answer.error()["message"]
