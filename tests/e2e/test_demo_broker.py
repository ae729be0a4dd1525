"""`bkctl demo --broker`: official clients go on while their broker is killed, and nothing is left behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.command_line import bkctl
from tests.e2e.local import Local, end
from tests.e2e.test_demo import processes_below

pytest.importorskip("pulsar", reason="needs pulsar-client")

MESSAGES = 20_000


@pytest.fixture
def local(tmp_path: Path) -> Local:
    found = Local(tmp_path)
    found.environ = {**found.environ, "TMPDIR": str(tmp_path)}
    return found


@pytest.mark.zookeeper
@pytest.mark.slow
def test_every_message_arrives_in_order_and_nothing_is_left(local: Local) -> None:
    steps = local.json("demo", "--broker")
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6]
    assert all(s["ok"] for s in steps), steps
    produce, kill, produced, taken, stored = (s["facts"] for s in steps[1:])
    assert produce["owner"] != kill["owner"]
    assert (produced["confirmed"], produced["failed"]) == (MESSAGES, 0)
    assert (taken["messages"], taken["missing"], taken["out_of_order"]) == (MESSAGES, 0, 0)
    assert all(taken["by_consumer"])
    assert (stored["missing"], stored["twice"]) == (0, 0)
    assert len(stored["ledgers"]) >= 2
    assert list(local.home.glob("bkctl-demo-*")) == []
    assert processes_below(local.home) == []


@pytest.mark.zookeeper
@pytest.mark.slow
def test_an_end_in_the_middle_leaves_nothing(local: Local) -> None:
    demo = local.start("demo", "--broker", "-o", "jsonl")
    assert demo.stdout is not None
    assert json.loads(demo.stdout.readline())["title"] == "start a cluster"
    assert processes_below(local.home)
    code, _, err = end(demo, signal.SIGTERM)
    assert code == 130, err
    assert list(local.home.glob("bkctl-demo-*")) == []
    assert processes_below(local.home) == []


@pytest.mark.parametrize("package", ["pulsar", "starlette"])
def test_a_missing_package_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    answer = bkctl("demo", "--broker", "-o", "json")
    assert (answer.code, answer.stdout) == (6, "")
    assert package in answer.error()["message"]
    assert "pip install 'bkctl[" in answer.error()["hint"]
