"""What `ledger recover` and `ledger fence` share: passwords, several ledgers, the items of reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.cli.ledger._recovery import report_item
from bkctl.model.ledger import DigestType, LedgerState
from tests.unit.cli.topic.live import Live

ENTRIES = [b"0", b"1"]


def secret_ledger(live: Live) -> int:
    return live.ledger(ENTRIES, close=False, digest_type=DigestType.HMAC, password=b"p")


@pytest.mark.parametrize("verb", ["recover", "fence"])
def test_without_an_option_the_password_of_the_metadata_is_used(live: Live, verb: str) -> None:
    done = live.bkctl("ledger", verb, secret_ledger(live), "--yes", "-o", "json")
    assert (done.code, done.json()["state_before"]) == (0, "OPEN"), done.stderr


@pytest.mark.parametrize("verb", ["recover", "fence"])
def test_a_wrong_password_is_unauthorized_and_changes_nothing(live: Live, tmp_path: Path, verb: str) -> None:
    ledger_id, file = secret_ledger(live), tmp_path / "password"
    file.write_text("wrong\n")
    wrong = live.bkctl("ledger", verb, ledger_id, "--password-file", file, "--yes", "-o", "json")
    assert (wrong.code, wrong.stdout, wrong.error()["kind"]) == (7, "", "unauthorized")
    assert live.bkctl("ledger", "show", ledger_id, "-o", "json").json()["state"] == "OPEN"


def test_a_list_of_names_gives_a_list_and_one_name_an_item(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES, close=False)
    listed = live.bkctl("ledger", "fence", "-", "--yes", "-o", "json", stdin=f"{ledger_id:#x}\n".encode()).json()
    assert [item["ledger_id"] for item in listed["items"]] == [ledger_id]
    assert live.bkctl("ledger", "recover", ledger_id, "--yes", "-o", "json").json()["ledger_id"] == ledger_id
    table = live.bkctl("ledger", "recover", ledger_id, ledger_id, "--yes").stdout.splitlines()
    assert table[0].split()[:4] == ["ledger_id", "state_before", "state", "last_entry_id"]
    assert [line.split()[:4] for line in table[1:]] == [[str(ledger_id), "CLOSED", "CLOSED", "1"]] * 2


def test_the_report_of_a_recovery_has_the_answers_of_the_bookies(live: Live) -> None:
    from bkrecovery.ledger import recover_ledger

    report = live.on_loop(recover_ledger(live.client, live.ledger(ENTRIES, close=False), b""))
    item = report_item(report)
    assert (item["state"], item["last_entry_id"], item["length"]) == (LedgerState.CLOSED, 1, 2)
    assert item["ensembles_changed"] == []
    assert item["last_confirmed_found"] == report.last_confirmed_found
    assert isinstance(item["fencing_answers"], dict)


def test_explaining_several_ledgers_lists_them(live: Live) -> None:
    open_, closed = live.ledger(ENTRIES, close=False), live.ledger(ENTRIES)
    found = live.bkctl("ledger", "recover", open_, closed, "--explain", "-o", "json")
    assert [(item["ledger_id"], item["state"]) for item in found.json()["items"]] == [
        (open_, "OPEN"),
        (closed, "CLOSED"),
    ]
    table = live.bkctl("ledger", "recover", open_, closed, "--explain")
    assert table.stdout.split()[:4] == ["ledger_id", "state", "can_recover", "could_lose"]
    missing = live.bkctl("ledger", "recover", 999_999, "--explain", "-o", "json")
    assert (missing.code, missing.stdout, missing.error()["kind"]) == (4, "", "no_such_ledger")
