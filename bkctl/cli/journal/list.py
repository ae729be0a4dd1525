"""`bkctl journal list`: the journals of a bookie."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import JOURNAL_KEYS, Paths, configured
from bkctl.cli.render import moment

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl journal list /data/journal", "bkctl journal list -c bk_server.conf -o json"),
    columns=("journal_id", "file", "size", "version", "modified"),
    name="file",
    timeout_s=None,
)


def run(env: Env, paths: Paths = None) -> Iterator[dict[str, object]]:
    """List journals and their headers.

    version is null if the header cannot be read. size includes preallocated zeros.
    """
    from bkinspect.journal import summary
    from bkinspect.source import journals

    for journal in journals(paths or (), configured(env, JOURNAL_KEYS)):
        found = summary(journal)
        yield {
            "journal_id": found.journal_id,
            "file": found.file,
            "size": found.size,
            "version": found.version,
            **moment("modified", found.modified_ms),
        }
