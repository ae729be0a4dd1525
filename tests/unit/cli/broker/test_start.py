"""`bkctl broker start`: configurations that it rejects before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import bkctl

pytest.importorskip("starlette")


def test_a_start_without_a_configuration_is_a_usage_error() -> None:
    answer = bkctl("broker", "start", "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.error()["hint"] == "bkctl broker start -c broker.conf"


def test_a_configuration_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("broker", "start", "-c", "/nonexistent/broker.conf", "-o", "json")
    assert (answer.code, answer.stdout) == (4, "")
    assert "/nonexistent/broker.conf" in answer.error()["message"]


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("brokerServicePort=many\n", ("brokerServicePort",)),
        ("authenticationEnabled=maybe\n", ("authenticationEnabled",)),
    ],
)
def test_a_value_that_is_not_valid_is_a_usage_error_that_names_the_key(
    tmp_path: Path, conf: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"clusterName=c\nmetadataStoreUrl=zk:127.0.0.1:1\n{conf}")
    answer = bkctl("broker", "start", "-c", path, "-o", "json")
    assert (answer.code, answer.stdout) == (2, "")
    assert all(word in answer.error()["message"] for word in words)
    assert len(answer.stderr.splitlines()) == 1
