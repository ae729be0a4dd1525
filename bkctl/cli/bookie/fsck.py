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
            "--dir", metavar="DIR", help="a journal, ledger or index directory, or a parent of them; may be repeated"
        ),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="check the digest of every entry whose digest type is known")
    ] = False,
    while_running: Annotated[
        bool,
        typer.Option(
            "--while-running", help="check although a bookie is running; its latest writes cause false findings"
        ),
    ] = False,
    *,
    digests: Digests,
) -> Listing:
    """Check the directories of a stopped bookie.

    Checks each file, then all files against each other: cookies, lastMark, lastId and BOOKIE_STATUS; journals (records,
    torn tail, position of the mark); entry logs (header, every frame's bounds, ledgers map); indexes (RocksDB's
    checksums, .idx headers); every index row has its entry, every entry in a log or in a journal before the mark has
    its row, keys of ledgers agree. Give all directories of the bookie, so that they can be compared. Writes nothing.
    Refused (exit 3) while a bookie is running. Exit 1: findings of severity warning or error. `bkctl explain CODE`
    explains a finding.

    Cannot be checked: payloads of ledgers without a digest; in an .idx file the fence flag, and a master key that no
    journal contains.
    """
    from bkinspect.fsck import check, files_of, runs_on

    files = files_of(directory or _configured(env))
    lock = runs_on(files)
    if lock is not None and not while_running:
        raise Refused(
            f"a bookie is running on these directories ({lock} is locked)",
            hint="stop it first, or use --while-running",
            file=str(lock),
        )
    if lock is not None:
        env.warn(
            f"a bookie is running on these directories ({lock} is locked): its latest writes may cause false findings"
        )
    report = Reporter(env)
    env.detail(f"{len(files.journals)} journals, {len(files.logs)} logs, {len(files.indexes)} indexes")
    return Listing(map(report.judge, check(files, _book(env, files, deep, digests))), warnings=env.warnings)


def _configured(env: Env) -> list[Path]:
    """The directories of -c, each once.

    Raises:
        UsageError: it names no directory.
    """
    keys = (JOURNAL_KEYS, LEDGER_KEYS, INDEX_KEYS)
    found = list(dict.fromkeys(path for names in keys for path in configured(env, names)))
    if not found:
        raise UsageError(
            "no directories are given",
            hint="use --dir DIR, or -c CONF with journalDirectories and ledgerDirectories",
        )
    return found


def _book(env: Env, files: BookieFiles, deep: bool, digests: Digests) -> DigestBook:
    """The options for checking entries; without --deep or a digest option, entries are not checked."""
    from bkinspect.digests import DigestBook
    from bkinspect.entry_log import ledger_ids

    from bkctl.model.ledger import DigestType

    if deep or digests.digest is not None or digests.with_metadata:
        return digests.book(env, files.logs, ledger_ids)
    return DigestBook(DigestType.DUMMY)
