"""`bkctl bookie start`: configurations that it rejects before it runs."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import bkctl


def test_a_start_without_a_configuration_is_a_usage_error() -> None:
    answer = bkctl("bookie", "start", "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.error()["hint"] == "bkctl bookie start -c bk_server.conf"


def test_a_configuration_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("bookie", "start", "-c", "/nonexistent/bk_server.conf", "-o", "json")
    assert (answer.code, answer.stdout) == (4, "")
    assert "/nonexistent/bk_server.conf" in answer.error()["message"]


def test_a_value_that_is_not_valid_is_a_usage_error_that_names_the_key(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("bookiePort=many\n")
    answer = bkctl("bookie", "start", "-c", conf, "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert "bookiePort" in answer.error()["message"]


def test_the_uri_of_the_command_line_overrides_that_of_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"metadataServiceUri=zk://127.0.0.1:2181/x\nledgerDirectories={tmp_path}\n")
    answer = bkctl("bookie", "start", "-c", conf, "-m", "zk+ms://127.0.0.1:1/ledgers", "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert "zk+ms" in answer.error()["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["bk_server.conf"]
