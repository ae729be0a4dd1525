"""`bkctl journal lastmark`: up to where the ledger storage holds everything."""

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
    """Shows the lastMark of each journal: replay starts there.

    It is kept in every ledger directory, not beside the journal; of several copies the greatest counts. Journal id 0
    means that there is no mark and every journal is replayed.
    """
    from bkinspect.data_dir import marks
    from bkinspect.source import directories

    report = Reporter(env)
    folders = [Path(path) for path in paths or ()] or configured(env, LEDGER_KEYS)
    if not folders:
        raise UsageError("which ledger directories?", hint="name them, or a configuration with ledgerDirectories (-c)")
    return Listing(marks(directories(folders), report), warnings=report.warnings)
