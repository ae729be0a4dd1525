"""`ledger tail`: follows a ledger until it is closed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bkctl.client.writer import LedgerWriter
from tests.unit.cli.topic.live import Live

PAYLOADS = [b"%d" % number for number in range(12)]


@pytest.fixture(scope="module")
def ledger(live: Live) -> int:
    return live.ledger(PAYLOADS)


@pytest.mark.parametrize(
    ("options", "ids"),
    [((), range(2, 12)), (("--lines", 2), (10, 11)), (("--lines", 0), ()), (("--from", 9), (9, 10, 11))],
)
def test_the_last_entries_of_a_closed_ledger_are_shown(
    live: Live, ledger: int, options: tuple[str | int, ...], ids: range | tuple[int, ...]
) -> None:
    answer = live.bkctl("ledger", "tail", ledger, *options, "-o", "jsonl")
    assert (answer.code, [row["entry_id"] for row in answer.rows()]) == (0, list(ids))
    assert answer.stderr == f"ledger {ledger} is closed at entry 11\n"


def test_payloads_are_written_as_they_are(live: Live, ledger: int) -> None:
    assert live.bkctl("ledger", "tail", ledger, "--lines", 2, "--raw").raw == b"1011"
    assert live.bkctl("ledger", "tail", ledger, "--lines", 2, "-o", "name").stdout == "10\n11\n"


def test_a_ledger_that_is_written_is_followed_to_its_end(live: Live) -> None:
    async def begin() -> LedgerWriter:
        writer = await live.client.create(2, 2, 2)
        writer.append_many(PAYLOADS[:3])
        await writer.flush()
        return writer

    async def end() -> None:
        writer.append_many(PAYLOADS[3:])
        await writer.flush()
        await writer.close()

    writer = live.on_loop(begin())
    with ThreadPoolExecutor(1) as thread:
        tail = thread.submit(live.bkctl, "ledger", "tail", int(writer.ledger_id), "--from", 0, "-o", "name")
        live.on_loop(end())
        answer = tail.result()
    assert (answer.code, answer.stdout.split()) == (0, [str(number) for number in range(12)]), answer.stderr


@pytest.mark.parametrize(("arguments", "code"), [((5, "--lines", -1), 2), (("five",), 2), ((999_999,), 4)])
def test_a_failure_prints_nothing_on_stdout(live: Live, arguments: tuple[str | int, ...], code: int) -> None:
    answer = live.bkctl("ledger", "tail", *arguments)
    assert (answer.code, answer.stdout) == (code, "")
