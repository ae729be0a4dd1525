"""`cursor set`: overwrites or restores the state of a cursor of an unloaded topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE
from tests.unit.cli.topic.live import Live


def first_ledger(live: Live, topic: str) -> str:
    return live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[0]


def test_a_cursor_is_set_and_its_old_state_restored(live: Live) -> None:
    topic = live.topic("set", 5, 2, cursors=("s",))
    ledger = first_ledger(live, topic)
    done = live.bkctl("cursor", "set", topic, "s", "--mark-delete", f"{ledger}:2", "--yes", "-o", "json")
    assert done.code == Exit.OK, done.stderr
    item = done.json()
    assert (item["mark_delete"], item["backlog_before"], item["backlog"]) == (f"{ledger}:2", 7, 4)
    assert live.bkctl("subscription", "show", topic, "s", "-o", "json").json()["backlog"] == 4
    backup = Path(item["backup"])
    assert backup.stat().st_mode & 0o077 == 0
    saved = json.loads(backup.read_text())
    assert (saved["cursor"], saved["managed_ledger"]) == ("s", "public/default/persistent/set")
    back = live.bkctl("cursor", "set", topic, "s", "--restore", backup, "--yes", "-o", "json").json()
    assert (back["backlog_before"], back["backlog"]) == (4, 7)


def test_nothing_is_set_without_confirmation_or_in_a_dry_run(live: Live) -> None:
    topic = live.topic("set-plan", 5, cursors=("s",))
    ledger = first_ledger(live, topic)
    arguments = ("cursor", "set", topic, "s", "--mark-delete", f"{ledger}:2")
    refused = live.bkctl(*arguments)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl(*arguments, "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"set cursor s of {topic}"
    assert (plan["steps"][0].endswith("backlog 5 → 2"), plan["typed"]) == (True, True), (
        "it loses entries of the backlog"
    )
    assert live.bkctl("subscription", "show", topic, "s", "-o", "json").json()["backlog"] == 5
    assert not list((live.home / "state" / "cursors").glob("*set-plan*"))


def test_a_position_outside_of_the_topic_names_the_nearest(live: Live) -> None:
    topic = live.topic("set-outside", 5, cursors=("s",))
    ledger = first_ledger(live, topic)
    wrong = live.bkctl("cursor", "set", topic, "s", "--mark-delete", f"{ledger}:99", "--yes", "-o", "json")
    assert (wrong.code, wrong.stdout) == (Exit.USAGE, "")
    assert f"the nearest is {ledger}:4" in wrong.error()["message"]


def test_a_cursor_of_a_loaded_topic_is_refused_with_the_owner(served: Live) -> None:
    topic = served.load("public/default/set", 3)
    assert served.bkctl("subscription", "create", topic, "s", "--yes").code == Exit.OK
    ledger = first_ledger(served, topic)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    arguments = ("cursor", "set", topic, "s", "--mark-delete", f"{ledger}:1", "--yes", "-o", "json")
    refused = served.bkctl(*arguments)
    assert (refused.code, refused.stdout, refused.error()["kind"]) == (Exit.REFUSED, "", "refused")
    assert f"is loaded by broker {broker}" in refused.error()["message"]
    assert served.bkctl("topic", "unload", topic, "--yes").code == Exit.OK
    done = served.bkctl(*arguments)
    assert (done.code, done.json()["mark_delete"]) == (Exit.OK, f"{ledger}:1"), done.stderr


def test_a_cursor_that_does_not_exist_and_a_partitioned_topic_are_errors(live: Live) -> None:
    topic = live.topic("set-none", 1)
    missing = live.bkctl("cursor", "set", topic, "none", "--mark-delete", "1:1", "--yes", "-o", "json")
    assert (missing.code, missing.stdout, missing.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
    assert live.bkctl("topic", "create", "set-parts", "--partitions", 2, "--yes").code == Exit.OK
    parts = live.bkctl("cursor", "set", "set-parts", "s", "--mark-delete", "1:1", "--yes", "-o", "json")
    assert (parts.code, "has 2 partitions" in parts.error()["message"]) == (Exit.USAGE, True)


def test_a_file_that_is_not_a_backup_of_the_cursor_is_refused(live: Live, tmp_path: Path) -> None:
    topic, other = live.topic("set-a", 2, cursors=("s",)), live.topic("set-b", 2, cursors=("s",))
    for text in ("{}", "[]", "no json", '{"managed_ledger": "a", "cursor": "s", "state": "/////w=="}'):
        file = tmp_path / "backup"
        file.write_text(text)
        answer = live.bkctl("cursor", "set", topic, "s", "--restore", file, "--yes", "-o", "json")
        assert (answer.code, answer.stdout) == (Exit.BAD_BYTES, ""), text
    made = live.bkctl(
        "cursor", "set", topic, "s", "--mark-delete", f"{first_ledger(live, topic)}:0", "--yes", "-o", "json"
    )
    wrong = live.bkctl("cursor", "set", other, "s", "--restore", made.json()["backup"], "--yes", "-o", "json")
    assert (wrong.code, "is a backup of cursor s of" in wrong.error()["message"]) == (Exit.USAGE, True)


@pytest.mark.parametrize("options", [(), ("--mark-delete", "x"), ("--mark-delete", "1:1", "--restore", "f")])
def test_wrong_options_are_refused_before_connecting(options: tuple[str, ...]) -> None:
    answer = bkctl("-m", NOWHERE, "cursor", "set", "t", "s", *options, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
