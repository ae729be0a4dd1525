"""`bkctl entrylog verify`: verifies entry logs."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    FINDING_COLUMNS,
    FINDING_WIDE,
    Digests,
    Paths,
    Reporter,
    logs_of,
)
from bkctl.cli.render import Listing

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl entrylog verify /data/ledgers",
        "bkctl entrylog verify /data/ledgers/current/0.log -o json",
        "bkctl entrylog verify -c bk_server.conf --digest CRC32C",
    ),
    columns=FINDING_COLUMNS,
    wide=FINDING_WIDE,
    timeout_s=None,
)


def run(
    env: Env,
    paths: Paths = None,
    *,
    digests: Digests,
) -> Listing:
    """Verify the frames, digests, ids and ledgers maps of entry logs.

    Exit 1: findings of severity warning or error. `bkctl explain CODE` explains a finding.
    """
    from bkinspect.entry_log import ledger_ids, verify_all

    report = Reporter(env)
    files = logs_of(env, paths)
    book = digests.book(env, files, ledger_ids)
    env.detail(f"{len(files)} logs")
    return Listing(map(report.judge, verify_all(files, book)))
