"""`topic tail`: follows topics until they are terminated."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE
from tests.unit.cli.topic.live import Live


@pytest.fixture(scope="module")
def ended(served: Live) -> str:
    """A topic with twelve entries that is terminated."""
    topic = served.load("public/default/tail-ended", 12)
    assert served.bkctl("topic", "terminate", topic, "--yes").code == Exit.OK
    return topic


@pytest.mark.parametrize(("options", "first"), [((), 2), (("--lines", 3), 9), (("--lines", 0), 12)])
def test_the_last_entries_of_a_terminated_topic_are_shown(
    served: Live, ended: str, options: tuple[str | int, ...], first: int
) -> None:
    answer = served.bkctl("topic", "tail", ended, *options, "-o", "jsonl")
    assert answer.code == Exit.OK
    assert [base64.b64decode(row["payload"]) for row in answer.rows()] == [b"m%d" % n for n in range(first, 12)]
    assert answer.stderr == f"{ended} is terminated\n"


def test_entries_from_a_position_on_are_shown(served: Live, ended: str) -> None:
    (ledger,) = served.bkctl("topic", "ledgers", ended, "-o", "name").stdout.split()
    some = served.bkctl("topic", "tail", ended, "--from", f"{ledger}:10", "-o", "name")
    assert some.stdout.split() == [f"{ledger}:10", f"{ledger}:11"]


def test_a_topic_is_followed_until_it_is_terminated(served: Live) -> None:
    topic = served.load("public/default/tail", 2)
    with ThreadPoolExecutor(1) as thread:
        tail = thread.submit(served.bkctl, "topic", "tail", topic, "-o", "jsonl")
        served.load(topic, 3)
        assert served.bkctl("topic", "terminate", topic, "--yes").code == Exit.OK
        answer = tail.result()
    assert [row["sequence_id"] for row in answer.rows()] == list(range(5)), answer.stderr


def test_a_failure_prints_nothing_on_stdout(live: Live) -> None:
    for arguments in (("t", "--lines", "-1"), ("t", "--from", "x:1")):
        wrong = bkctl("-m", NOWHERE, "topic", "tail", *arguments)
        assert (wrong.code, wrong.stdout) == (Exit.USAGE, "")
    missing = live.bkctl("topic", "tail", "tail-none", "-o", "json")
    assert (missing.code, missing.stdout, missing.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
