"""`bkctl demo`: the form of its steps, and its exit code; tests/e2e run the real ones."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator

import pytest
from bkdaemon.local.demo import Demo, Step

from bkctl.cli import demo
from bkctl.cli.run import execute
from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.test_run import env, written

STEPS = (Step(1, "start", "four bookies", True, 1.5, {"bookies": 4}), Step(2, "kill", "one is dead", True, 0.5))
FAILED = Step(3, "read", "an entry is missing", False, 0.25)


class Told(Demo):
    """A demo whose steps are known before; it starts no process."""

    told: tuple[Step, ...] = STEPS

    async def steps(self) -> AsyncGenerator[Step]:
        for step in self.told:
            yield step


class Fails(Told):
    told = (STEPS[0], FAILED, STEPS[1])


def run(kind: type[Told], monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Exit, str]:
    monkeypatch.setattr("bkdaemon.local.demo.Demo", kind)
    own = env(**options)
    return execute(own, demo.COMMAND, demo.run, {"broker": False}), written(own.stdout)


def test_steps_are_told_one_by_one_with_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(Told, monkeypatch)
    assert code is Exit.OK
    assert text.splitlines() == [
        "1. start  [ok, 1.5 s]",
        "   four bookies",
        "2. kill  [ok, 0.5 s]",
        "   one is dead",
        "",
        "Verdict: every acknowledged entry was read back (2.0 s). All processes are stopped and their files removed.",
    ]


def test_a_step_that_failed_is_the_last_one_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(Fails, monkeypatch)
    assert code is Exit.FINDINGS
    assert "3. read  [WRONG, 0.2 s]" in text
    assert "2. kill" not in text
    assert "Verdict: THE DEMO FAILED" in text


def test_steps_are_items_in_the_other_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(Told, monkeypatch, output="jsonl")
    rows = [json.loads(line) for line in text.splitlines()]
    assert (code, [row["step"] for row in rows], rows[0]["facts"]) == (Exit.OK, [1, 2], {"bookies": 4})
    code, text = run(Fails, monkeypatch, output="name")
    assert (code, text) == (Exit.FINDINGS, "1\n3\n")


@pytest.mark.parametrize("package", ["pulsar", "starlette"])
def test_a_missing_package_is_reported_before_a_process_is_started(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    answer = bkctl("demo", "--broker", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (6, "", "missing_extra")
    assert package in answer.error()["message"]
