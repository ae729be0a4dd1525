"""`bkctl journal read`: every record of journals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    Digests,
    Ledger,
    OnErrorOption,
    Paths,
    Payload,
    Reporter,
    journals_of,
    ledger_id_of,
    on_error_of,
    with_payloads,
)
from bkctl.cli.render import Listing

if TYPE_CHECKING:
    from bkinspect.journal import JournalRow

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl journal read /data/journal/current/1a1fbf652f7.txn",
        "bkctl journal read /data/journal --ledger 5 -o jsonl",
        "bkctl journal read /data/journal 1a1fbf652f7.txn --on-error resume",
    ),
    columns=("ledger_id", "entry_id", "offset", "size", "kind", "last_confirmed", "length", "digest_ok"),
    wide=("file",),
    name="entry_id",
    timeout_s=None,
)


def run(
    env: Env,
    paths: Paths = None,
    ledger: Ledger = None,
    padding: Annotated[bool, typer.Option("--padding", help="include padding records")] = False,
    start: Annotated[
        int | None, typer.Option("--start", metavar="OFFSET", help="start at this offset, such as that of lastMark")
    ] = None,
    payload: Payload = False,
    on_error: OnErrorOption = "stop",
    *,
    digests: Digests,
) -> Listing:
    """Read journals record by record.

    kind is entry, ledger_key, fence, explicit_lac, padding or unknown. offset is the offset of the record's body, after
    its 4-byte size: for an entry the same bytes as in the entry log. Ledger keys are not shown, as they are equivalent
    to passwords. With --on-error resume damage is reported on stderr as findings and the exit code is 1.
    """
    from bkinspect.journal import ledger_ids, scan

    policy = on_error_of(on_error)
    report = Reporter(env)
    ledger_id = ledger_id_of(ledger)
    files = journals_of(env, paths)
    book = digests.book(env, files, ledger_ids)

    def items() -> Iterator[JournalRow | dict[str, object]]:
        for journal in files:
            rows = scan(journal, book, on_error=policy, report=report, padding=padding, start=start)
            if ledger_id is not None:
                rows = (row for row in rows if row.ledger_id == ledger_id)
            yield from with_payloads(journal, rows, book) if payload else rows

    return Listing(items(), warnings=report.warnings)
