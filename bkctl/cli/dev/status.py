"""`bkctl dev status`: shows the services of the local cluster."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.dev._local import COLUMNS, WIDE, Directory, open_local, row
from bkctl.cli.env import Env
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl dev status", "bkctl dev status -o json"),
    columns=COLUMNS,
    wide=WIDE,
)


def run(env: Env, directory: Directory = None) -> list[dict[str, object]]:
    """Show the services of the local cluster. Exit 1: one is not running."""
    cluster = open_local(env, directory)
    env.note(f"metadata URI: {cluster.metadata_uri}")
    if not all(service.running for service in cluster.services):
        env.exit = Exit.FINDINGS
    return [row(service) for service in cluster.services]
