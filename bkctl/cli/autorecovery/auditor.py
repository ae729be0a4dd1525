"""`bkctl autorecovery auditor`: shows the auditor and its candidates."""

from __future__ import annotations

from bkctl.cli.autorecovery._notes import open_board
from bkctl.cli.autorecovery._queue import cluster_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery auditor", "bkctl autorecovery auditor -o name"),
    columns=("auditor", "candidates", "takes_requests"),
)


async def run(env: Env) -> dict[str, object]:
    """Show which auto recovery process is the auditor, and which would succeed it.

    Exit 1: no auditor is running. `takes_requests` is true for an auditor of bkctl, which accepts `trigger --check` and
    `check --wait`; a Java auditor accepts neither.
    """
    from bkctl.meta.election import Election

    async with cluster_of(env) as cluster:
        votes = await Election(cluster.store, cluster.root).votes()
        listens = await open_board(cluster).auditor_listens()
    if not votes:
        env.exit = Exit.FINDINGS
    return {
        "auditor": votes[0].candidate if votes else None,
        "candidates": [vote.candidate for vote in votes[1:]],
        "takes_requests": listens,
    }
