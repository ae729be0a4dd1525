"""`bkctl entrylog show`: the header and the ledgers of entry logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import Paths, Reporter, logs_of
from bkctl.cli.render import Format, Listing, fields_of

if TYPE_CHECKING:
    from bkinspect.source import Numbered

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl entrylog show /data/ledgers/current/0.log",
        "bkctl entrylog show /data/ledgers 0x1f --ledgers",
        "bkctl entrylog show -c bk_server.conf -o jsonl",
    ),
    name="file",
    timeout_s=None,
)


def run(
    env: Env,
    paths: Paths = None,
    ledgers: Annotated[bool, typer.Option("--ledgers", help="one row per ledger instead of one per log")] = False,
) -> Listing:
    """Show the header of entry logs and the bytes of each ledger.

    The bytes come from the ledgers map; a log without a valid ledgers map is scanned.
    """
    report = Reporter(env)
    logs = logs_of(env, paths)
    items = _by_ledger(logs, report) if ledgers else _by_log(logs, report, shares=env.format is not Format.TABLE)
    return Listing(items, warnings=report.warnings)


def _by_log(logs: list[Numbered], report: Reporter, *, shares: bool) -> Iterator[dict[str, object]]:
    """One item a log; a table omits the bytes of each ledger."""
    from bkinspect.entry_log import contents

    for log in logs:
        item = dict(fields_of(contents(log, report)) or {})
        if not shares:
            item.pop("ledgers")
        yield item


def _by_ledger(logs: list[Numbered], report: Reporter) -> Iterator[object]:
    from bkinspect.entry_log import contents

    for log in logs:
        found = contents(log, report)
        for share in found.ledgers:
            yield {"ledger_id": share.ledger_id, "size": share.size, "log_id": found.log_id, "file": found.file}
