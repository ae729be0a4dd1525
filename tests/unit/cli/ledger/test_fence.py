"""`ledger fence`: stops a ledger's writer without closing the ledger."""

from __future__ import annotations

import pytest

from bkctl.client.writer import LedgerWriter
from bkctl.errors import LedgerFenced
from tests.unit.cli.topic.live import Live


def test_a_fenced_ledger_is_in_recovery_and_its_writer_fails(live: Live) -> None:
    async def begin() -> LedgerWriter:
        writer = await live.client.create(2, 2, 2)
        writer.append_many([b"0", b"1"])
        await writer.flush()
        return writer

    async def add(writer: LedgerWriter) -> None:
        writer.append_many([b"2"])
        await writer.flush()

    writer = live.on_loop(begin())
    done = live.bkctl("ledger", "fence", writer.ledger_id, "--yes", "-o", "json")
    assert done.code == 0, done.stderr
    item = done.json()
    assert (item["state_before"], item["state"], item["last_entry_id"]) == ("OPEN", "IN_RECOVERY", None)
    assert item["closed_by_us"] is False
    assert item["fencing_answers"].keys() <= {str(bookie) for bookie in live.bookies}
    assert live.bkctl("ledger", "show", writer.ledger_id, "-o", "json").json()["state"] == "IN_RECOVERY"
    with pytest.raises(LedgerFenced):
        live.on_loop(add(writer))


def test_a_plan_names_the_bookies_and_nothing_is_fenced_without_confirmation(live: Live) -> None:
    ledger_id = live.ledger([b"0"], close=False)
    refused = live.bkctl("ledger", "fence", ledger_id)
    assert (refused.code, refused.stdout) == (3, "")
    plan = live.bkctl("ledger", "fence", ledger_id, "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"fence ledger {ledger_id}: stop the writer permanently, without closing"
    assert all(bookie in plan["steps"][0] for bookie in live.bookies)
    assert live.bkctl("ledger", "show", ledger_id, "-o", "json").json()["state"] == "OPEN"


def test_of_several_ledgers_one_that_is_closed_is_a_warning(live: Live) -> None:
    closed, open_ = live.ledger([b"0"]), live.ledger([b"0"], close=False)
    alone = live.bkctl("ledger", "fence", closed, "--yes", "-o", "json")
    assert (alone.code, alone.stdout, alone.error()["exit_code"]) == (7, "", 7)
    some = live.bkctl("ledger", "fence", closed, open_, "--yes", "-o", "json")
    assert (some.code, [item["ledger_id"] for item in some.json()["items"]]) == (1, [open_])
    assert len(some.json()["warnings"]) == 1


def test_a_ledger_that_does_not_exist_is_not_found(live: Live) -> None:
    answer = live.bkctl("ledger", "fence", 999_999, "--yes")
    assert (answer.code, answer.stdout) == (4, "")
