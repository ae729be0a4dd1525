"""`bkctl entrylog verify`: what is wrong with entry logs."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import (
    DigestName,
    Password,
    PasswordFile,
    Paths,
    Reporter,
    WithMetadata,
    digest_book,
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
    columns=("code", "severity", "subject", "offset", "message"),
    wide=("file", "ledger_id", "entry_id", "evidence", "next"),
    timeout_s=None,
)


def run(
    env: Env,
    paths: Paths = None,
    digest: DigestName = None,
    password: Password = None,
    password_file: PasswordFile = None,
    with_metadata: WithMetadata = False,
) -> Listing:
    """Reads entry logs whole and reports what is wrong: frames, digests, ids, and the ledgers map against the frames.

    Exits with 1 if anything was found that is more than worth knowing. `bkctl explain CODE` says what a finding means.
    """
    from bkinspect.entry_log import ledger_ids, verify_all

    report = Reporter(env)
    files = logs_of(env, paths)
    ids = (lambda: set().union(*map(ledger_ids, files))) if with_metadata else None
    book = digest_book(env, digest, password, password_file, ids)
    env.detail(f"{len(files)} logs")
    return Listing(map(report.judge, verify_all(files, book)))
