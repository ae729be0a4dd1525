"""`bkctl bookie fsck`: checks the directories of a stopped bookie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    FINDING_COLUMNS,
    FINDING_WIDE,
    INDEX_KEYS,
    JOURNAL_KEYS,
    LEDGER_KEYS,
    Digests,
    Reporter,
    configured,
)
from bkctl.cli.render import Listing
from bkctl.errors import Refused, UsageError

if TYPE_CHECKING:
    from bkinspect.digests import DigestBook
    from bkinspect.fsck import BookieFiles

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl bookie fsck -c bk_server.conf",
        "bkctl bookie fsck --dir /data/journal --dir /data/ledgers --deep -o json",
        "bkctl bookie fsck --dir /data/bookie",
    ),
    columns=FINDING_COLUMNS,
    wide=FINDING_WIDE,
    timeout_s=None,
)


def run(
    env: Env,
    directory: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir", metavar="DIR", help="a journal, ledger or index directory, or what holds them; repeat it"
        ),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="check the digest of every entry, where its digest can be known")
    ] = False,
    while_running: Annotated[
        bool, typer.Option("--while-running", help="although a bookie runs there: what it writes just now looks wrong")
    ] = False,
    *,
    digests: Digests,
) -> Listing:
    """Checks a stopped bookie's directories: each file by itself, then all of them against each other.

    Cookies, lastMark, lastId and BOOKIE_STATUS; journals (records, torn tail, what the mark names); entry logs (header,
    every frame's bounds, ledgers map); indexes (RocksDB's checksums, .idx headers); every index row has its entry,
    every entry in a log or in a journal before the mark has its row, keys of ledgers agree. Give all directories of the
    bookie: what is not given cannot be compared. Nothing is written. Refused (exit 3) where a bookie runs. Exit 1 if
    anything was found that is more than worth knowing. `bkctl explain CODE` says what a finding means.

    What cannot be known here: payloads of ledgers without a digest; in an .idx file the flag of a fence, and a master
    key that no journal has.
    """
    from bkinspect.fsck import check, files_of, runs_on

    files = files_of(directory or _configured(env))
    lock = runs_on(files)
    if lock is not None and not while_running:
        raise Refused(
            f"a bookie runs on these directories ({lock} is locked)",
            hint="stop it first; --while-running checks nevertheless",
            file=str(lock),
        )
    if lock is not None:
        env.warn(f"a bookie runs on these directories ({lock} is locked): what it writes just now looks wrong")
    report = Reporter(env)
    env.detail(f"{len(files.journals)} journals, {len(files.logs)} logs, {len(files.indexes)} indexes")
    return Listing(map(report.judge, check(files, _book(env, files, deep, digests))), warnings=env.warnings)


def _configured(env: Env) -> list[Path]:
    """The directories of -c, each once.

    Raises:
        UsageError: it names none.
    """
    keys = (JOURNAL_KEYS, LEDGER_KEYS, INDEX_KEYS)
    found = list(dict.fromkeys(path for names in keys for path in configured(env, names)))
    if not found:
        raise UsageError(
            "which directories?",
            hint="--dir DIR, or a configuration with journalDirectories and ledgerDirectories (-c)",
        )
    return found


def _book(env: Env, files: BookieFiles, deep: bool, digests: Digests) -> DigestBook:
    """How entries are checked; without --deep, or an option that says how, they are not."""
    from bkinspect.digests import DigestBook
    from bkinspect.entry_log import ledger_ids

    from bkctl.model.ledger import DigestType

    if deep or digests.digest is not None or digests.with_metadata:
        return digests.book(env, files.logs, ledger_ids)
    return DigestBook(DigestType.DUMMY)
