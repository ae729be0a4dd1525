"""`bkctl journal verify`: verifies journals and lastMark."""

from __future__ import annotations

from pathlib import Path

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    FINDING_COLUMNS,
    FINDING_WIDE,
    LEDGER_KEYS,
    Digests,
    Paths,
    Reporter,
    configured,
    journals_of,
)
from bkctl.cli.render import Listing

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl journal verify /data/journal",
        "bkctl journal verify /data/bookie -o json",
        "bkctl journal verify -c bk_server.conf",
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
    """Verify the records and digests of journals, and data after their end.

    If the directories contain lastMark (a bookie's directory, or -c), it is checked against the journals. Exit 1:
    findings of severity warning or error. `bkctl explain CODE` explains a finding.
    """
    from bkinspect.data_dir import verify_journals
    from bkinspect.journal import ledger_ids
    from bkinspect.source import directories

    report = Reporter(env)
    folders = directories([p for p in map(Path, paths or ()) if p.is_dir()] or configured(env, LEDGER_KEYS))
    files = journals_of(env, paths)
    book = digests.book(env, files, ledger_ids)
    env.detail(f"{len(files)} journals")
    return Listing(map(report.judge, verify_journals(files, folders, book)))
