"""`bkctl entrylog scan`: every frame of entry logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    Digests,
    FirstEntry,
    LastEntry,
    Ledger,
    OnErrorOption,
    Paths,
    Payload,
    Reporter,
    ledger_id_of,
    logs_of,
    on_error_of,
    with_payloads,
)
from bkctl.cli.render import Listing

if TYPE_CHECKING:
    from bkinspect.entry_log import LogRow

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl entrylog scan /data/ledgers/current/0.log",
        "bkctl entrylog scan /data/ledgers --ledger 5 --from 100 --to 200 -o jsonl",
        "bkctl entrylog scan 0.log --on-error resume",
    ),
    columns=("ledger_id", "entry_id", "offset", "size", "last_confirmed", "length", "digest_ok", "kind"),
    wide=("file",),
    name="entry_id",
    timeout_s=None,
)


def run(
    env: Env,
    paths: Paths = None,
    ledger: Ledger = None,
    first: FirstEntry = None,
    last: LastEntry = None,
    payload: Payload = False,
    on_error: OnErrorOption = "stop",
    *,
    digests: Digests,
) -> Listing:
    """Read entry logs frame by frame.

    offset is the offset of the entry itself, after its 4-byte size. digest_ok is null if the digest cannot be checked:
    entry logs do not contain the digest type, so it is deduced from the entries (or read from the metadata store, with
    --with-metadata); MAC needs the password, DUMMY has no digest. With --on-error resume damage is reported on stderr
    as findings and the exit code is 1.
    """
    from bkinspect.entry_log import ledger_ids, scan

    policy = on_error_of(on_error)
    report = Reporter(env)
    files = logs_of(env, paths)
    book = digests.book(env, files, ledger_ids)
    wanted = _wanted(ledger_id_of(ledger), first, last)

    def items() -> Iterator[LogRow | dict[str, object]]:
        for log in files:
            rows = scan(log, book, on_error=policy, report=report)
            if wanted is not None:
                rows = (row for row in rows if row.ledger_id in wanted[0] and row.entry_id in wanted[1])
            yield from with_payloads(log, rows, book) if payload else rows

    return Listing(items(), warnings=report.warnings)


def _wanted(ledger_id: int | None, first: int | None, last: int | None) -> tuple[range, range] | None:
    """A filter of ledger and entry ids; None selects all frames, also those that are not entries."""
    if ledger_id is None and first is None and last is None:
        return None
    everything = range(2**63)
    ledgers = everything if ledger_id is None else range(ledger_id, ledger_id + 1)
    return ledgers, range(first or 0, everything.stop if last is None else last + 1)
