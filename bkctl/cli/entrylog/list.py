"""`bkctl entrylog list`: the entry logs of a bookie."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import LEDGER_KEYS, Paths, configured
from bkctl.cli.render import moment

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl entrylog list /data/ledgers", "bkctl entrylog list -c bk_server.conf -o jsonl"),
    columns=("log_id", "file", "size", "state", "ledger_count", "modified"),
    wide=("format", "map_offset"),
    name="file",
    timeout_s=None,
)


def run(env: Env, paths: Paths = None) -> Iterator[dict[str, object]]:
    """List entry logs and their headers.

    state: closed (has a ledgers map), open (was never closed), empty (preallocated), damaged (invalid header),
    compacting and compacted (left by a compaction). The directories come from PATH or from -c.
    """
    from bkinspect.entry_log import summary
    from bkinspect.source import entry_logs

    for log in entry_logs(paths or (), configured(env, LEDGER_KEYS)):
        found = summary(log)
        yield {
            "log_id": found.log_id,
            "file": found.file,
            "size": found.size,
            "state": found.state,
            "format": found.format,
            "map_offset": found.map_offset,
            "ledger_count": found.ledger_count,
            **moment("modified", found.modified_ms),
        }
