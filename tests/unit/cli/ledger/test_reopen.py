"""`ledger reopen`: sets a closed ledger to IN_RECOVERY, so that its end is recovered again."""

from __future__ import annotations

from pathlib import Path

from bkctl.codec.ledger_metadata import decode_metadata
from tests.unit.cli.topic.live import Live

ENTRIES = [b"0", b"1", b"2"]
REOPEN = ("--as", "in-recovery")


def shorten(live: Live, ledger_id: int) -> None:
    """Closes an open ledger before its last entry."""

    async def close() -> None:
        metadata, version = await live.client.ledgers.read(ledger_id)
        await live.client.ledgers.write(ledger_id, metadata.closed_at(0, 1), version)

    live.on_loop(close())


def test_a_ledger_that_was_closed_too_early_gets_its_entries_back(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES, close=False)
    shorten(live, ledger_id)
    done = live.bkctl("ledger", "reopen", ledger_id, *REOPEN, "--yes", "-o", "json")
    assert done.code == 0, done.stderr
    item = done.json()
    assert (item["state_before"], item["state"], item["last_entry_id_before"]) == ("CLOSED", "IN_RECOVERY", 0)
    assert (item["recovery_closes_at"], item["changed"]) == (2, True)
    kept = Path(item["kept_in"])
    assert decode_metadata(kept.read_bytes(), source="kept").last_entry_id == 0
    assert kept.stat().st_mode & 0o077 == 0, "it has the password"
    assert str(kept) in done.stderr
    recovered = live.bkctl("ledger", "recover", ledger_id, "--yes", "-o", "json").json()
    assert (recovered["state"], recovered["last_entry_id"]) == ("CLOSED", 2)


def test_a_ledger_in_recovery_is_not_changed(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES)
    assert live.bkctl("ledger", "reopen", ledger_id, "--yes").code == 0
    again = live.bkctl("ledger", "reopen", ledger_id, "--yes", "-o", "json").json()
    assert (again["changed"], again["kept_in"], again["state_before"]) == (False, None, "IN_RECOVERY")


def test_a_reopen_is_shown_first_and_needs_confirmation(live: Live) -> None:
    ledger_id = live.ledger(ENTRIES)
    refused = live.bkctl("ledger", "reopen", ledger_id)
    assert (refused.code, refused.stdout) == (3, "")
    plan = live.bkctl("ledger", "reopen", ledger_id, "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"reopen ledger {ledger_id}"
    assert plan["steps"][0] == f"ledger {ledger_id}: closed at entry 2 → in recovery"
    assert live.bkctl("ledger", "show", ledger_id, "-o", "json").json()["state"] == "CLOSED"


def test_an_end_that_would_become_shorter_is_refused_unless_requested(live: Live) -> None:
    ledger_id = live.ledger([], close=False)

    async def lengthen() -> None:
        metadata, version = await live.client.ledgers.read(ledger_id)
        await live.client.ledgers.write(ledger_id, metadata.closed_at(4, 5), version)

    live.on_loop(lengthen())
    refused = live.bkctl("ledger", "reopen", ledger_id, "--yes", "-o", "json")
    assert (refused.code, refused.stdout, refused.error()["kind"]) == (3, "", "refused")
    assert "--may-shorten" in refused.error()["hint"]
    forced = live.bkctl("ledger", "reopen", ledger_id, "--may-shorten", "--yes", "-o", "json")
    assert (forced.code, forced.json()["state"]) == (0, "IN_RECOVERY")


def test_an_open_ledger_and_another_state_are_refused(live: Live) -> None:
    open_, closed = live.ledger(ENTRIES, close=False), live.ledger(ENTRIES)
    alone = live.bkctl("ledger", "reopen", open_, "--yes", "-o", "json")
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (3, "", "refused")
    some = live.bkctl("ledger", "reopen", open_, 999_999, closed, "--yes", "-o", "json")
    assert (some.code, [item["ledger_id"] for item in some.json()["items"]]) == (1, [closed])
    assert len(some.json()["warnings"]) == 2
    wrong = live.bkctl("ledger", "reopen", closed, "--as", "open", "--yes")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert live.bkctl("ledger", "reopen", 999_999, "--yes").code == 4
