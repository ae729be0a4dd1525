"""`ledger create`: an empty, open ledger for `ledger write`."""

from __future__ import annotations

import base64

import pytest

from tests.unit.cli.topic.live import Live

CREATE = ("ledger", "create", "--ensemble-size", 2)


def test_a_created_ledger_is_open_and_unclaimed(live: Live) -> None:
    done = live.bkctl(*CREATE, "--digest", "MAC", "--custom-metadata", "app=a=b", "--yes", "-o", "json")
    assert done.code == 0, done.stderr
    item = done.json()
    assert (item["state"], item["digest_type"], item["length"], item["last_entry_id"]) == ("OPEN", "MAC", None, None)
    assert (item["ensemble_size"], item["write_quorum_size"], item["ack_quorum_size"]) == (2, 2, 2)
    custom = {key: base64.b64decode(value) for key, value in item["custom_metadata"].items()}
    assert (custom["app"], set(custom)) == (b"a=b", {"app", "bkctl-unclaimed"})
    assert live.bkctl("ledger", "show", item["ledger_id"], "-o", "json").json() == item


def test_the_name_of_a_created_ledger_is_its_id(live: Live) -> None:
    assert live.bkctl(*CREATE, "--id", "0x11170", "--yes", "-o", "name").stdout == "70000\n"
    again = live.bkctl(*CREATE, "--id", 70_000, "--yes", "-o", "json")
    assert (again.code, again.stdout, again.error()["kind"]) == (5, "", "already_exists")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--write-quorum-size", 3), "quorum"),
        (("--ack-quorum-size", 0), "quorum"),
        (("--digest", "MD5"), "is not a valid digest type"),
        (("--custom-metadata", "k"), "is not key=value"),
        (("--custom-metadata", "k=1", "--custom-metadata", "k=2"), "is given twice"),
        (("--id", "x"), "x"),
    ],
)
def test_wrong_options_are_usage_errors(live: Live, options: tuple[str | int, ...], words: str) -> None:
    answer = live.bkctl(*CREATE, *options, "--yes")
    assert (answer.code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_nothing_is_created_without_confirmation_or_in_a_dry_run(live: Live) -> None:
    before = live.bkctl("ledger", "list", "-o", "name").stdout
    refused = live.bkctl(*CREATE)
    assert (refused.code, refused.stdout) == (3, "")
    plan = live.bkctl(*CREATE, "--id", 71_000, "--dry-run")
    assert plan.stdout == "plan: create ledger 71000 (ensemble 2, write quorum 2, ack quorum 2, CRC32C)\n"
    assert live.bkctl("ledger", "list", "-o", "name").stdout == before


def test_a_ledger_on_more_bookies_than_are_registered_is_unavailable(live: Live) -> None:
    answer = live.bkctl("ledger", "create", "--yes", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["retryable"]) == (6, "", True)
