"""`bkctl index check`: compares the indexes of a stopped bookie with its entry logs and journals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.index._layout import IndexDirectory, layout
from bkctl.cli.offline import FINDING_COLUMNS, FINDING_WIDE, Reporter
from bkctl.cli.render import Listing
from bkctl.errors import Exit

if TYPE_CHECKING:
    from bkinspect.finding import Finding
    from bkinspect.layout import Layout

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl index check -c bk_server.conf",
        "bkctl index check /data/index -o json",
    ),
    columns=FINDING_COLUMNS,
    wide=FINDING_WIDE,
    timeout_s=None,
)
UNREADABLE: Final = frozenset({"BKC301", "BKC302"})


def run(env: Env, directory: IndexDirectory = None) -> Listing:
    """Check that every location has its entry, and every live entry a location.

    Reads the indexes, entry logs and journals of a stopped bookie whole and writes nothing. An entry is live if the
    index has its ledger and the bookie will not replay it from a journal. Exit 1 if anything does not match, 8 if an
    index is missing or cannot be read, 3 while a bookie runs on the directories. `bkctl index rebuild` repairs an
    index.
    """
    from bkrecovery.index_rebuild import check_stopped

    found = layout(env, directory)
    check_stopped(found)
    return Listing(_findings(env, found), warnings=env.warnings)


def _findings(env: Env, found: Layout) -> Iterator[Finding]:
    from bkinspect.fsck import IndexCounts, check_index

    report, counts = Reporter(env), IndexCounts()
    unreadable = False
    for finding in check_index(found, counts):
        unreadable = unreadable or finding.code in UNREADABLE
        yield report.judge(finding)
    if unreadable:
        env.exit = Exit.BAD_BYTES
    words = "match the index" if env.exit is Exit.OK else "were compared with the index"
    env.note(f"{counts.entries:,} entries in {counts.logs} entry logs {words}")
