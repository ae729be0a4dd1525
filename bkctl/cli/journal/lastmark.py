"""`bkctl journal lastmark`: shows the position where journal replay starts."""

from __future__ import annotations

from pathlib import Path

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import LEDGER_KEYS, Paths, Reporter, configured
from bkctl.cli.render import Listing
from bkctl.errors import UsageError

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl journal lastmark /data/ledgers", "bkctl journal lastmark -c bk_server.conf -o json"),
    columns=("journal_index", "journal_id", "journal", "offset", "file"),
    name="journal",
)


def run(env: Env, paths: Paths = None) -> Listing:
    """Show the lastMark of each journal, where replay starts.

    It is stored in every ledger directory, not in the journal directory; of several copies the greatest takes effect.
    Journal id 0: no mark exists and every journal is replayed.
    """
    from bkinspect.data_dir import marks
    from bkinspect.source import directories

    report = Reporter(env)
    folders = [Path(path) for path in paths or ()] or configured(env, LEDGER_KEYS)
    if not folders:
        raise UsageError("no ledger directory is given", hint="use DIR, or -c CONF with ledgerDirectories")
    return Listing(marks(directories(folders), report), warnings=report.warnings)
