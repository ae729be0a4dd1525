"""`bkctl bookie status`: shows the state of bookies."""

from __future__ import annotations

from typing import Any

from bkctl.cli.bookie._items import Bookies, Directory, admin_of, bookie_ids, bookie_item, disk_by_wire
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.errors import BkctlError, Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl bookie status 10.0.0.1:3181", "bkctl bookie status b1:3181 b2:3181 -o json"),
    columns=("bookie_id", "state", "ledgers", "connections", "version", "started", "reasons"),
    wide=("address", "http_port", "grpc_port", "cookie", "disk", "throttled", "cached_bytes", "disks", "journals"),
)
ASKED = ("connections", "version", "throttled", "cached_bytes", "reasons", "disks", "journals", "error")


async def run(env: Env, bookies: Bookies) -> object:
    """Show the state of bookies. Exit 1: one is down or does not answer.

    A bkctl bookie reports its state, and why it is read-only, through its admin port; for a Java bookie the disks are
    shown, the other fields are null.
    """
    names = bookie_ids(env, bookies)
    async with env.cluster() as cluster:
        directory = await Directory.read(cluster)
        found = [await _ask(env, cluster, directory, name) for name in names]
    if any(item["error"] is not None for item in found):
        env.exit = Exit.FINDINGS
    return found[0] if len(bookies) == 1 and len(found) == 1 else found


async def _ask(env: Env, cluster: Any, directory: Directory, bookie_id: Any) -> dict[str, Any]:
    item = await bookie_item(env, cluster, directory, bookie_id)
    item |= dict.fromkeys(ASKED) | moment("started", None)
    if item["address"] is None:
        item["error"] = "not registered"
        return item
    try:
        item["disk"] = await disk_by_wire(item["address"], bookie_id)
        admin = await admin_of(cluster, bookie_id)
        if admin is not None:
            async with admin:
                _fill(item, await admin.status())
    except BkctlError as e:
        item["error"] = e.message
    return item


def _fill(item: dict[str, Any], status: Any) -> None:
    """The state that the admin port reports."""
    item |= {
        "ledgers": status.ledgers,
        "connections": status.connections,
        "version": status.version,
        "throttled": status.throttled,
        "cached_bytes": status.cached_bytes,
        "reasons": [{"kind": r.kind, "text": r.text} for r in status.reasons],
        "disks": [{"directory": d.directory, "total": d.total_bytes, "free": d.free_bytes} for d in status.disks],
        "journals": [
            {
                "directory": j.directory,
                "journal_id": j.journal_id,
                "offset": j.offset,
                "waiting_bytes": j.waiting_bytes,
            }
            for j in status.journals
        ],
        **moment("started", status.started_ms),
    }
