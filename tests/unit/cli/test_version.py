from __future__ import annotations

from tests.command_line import bkctl


def test_one_object() -> None:
    answer = bkctl("version", "-o", "json")
    assert answer.code == 0
    assert set(answer.json()) == {"version", "python", "platform"}


def test_the_usual_flag() -> None:
    assert bkctl("--version").stdout.startswith("version")
