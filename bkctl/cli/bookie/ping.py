"""`bkctl bookie ping`: checks that bookies answer."""

from __future__ import annotations

from bkctl.cli.bookie._items import Bookies, Directory, bookie_ids, bookie_item, disk_by_wire
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import BkctlError, Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl bookie ping 10.0.0.1:3181", "bkctl bookie list -o name | bkctl bookie ping -"),
    columns=("bookie_id", "answers", "milliseconds"),
    wide=("address", "disk", "error"),
)


async def run(env: Env, bookies: Bookies) -> list[dict[str, object]]:
    """Check that bookies answer on their client port. Exit 1: one does not."""
    import asyncio

    loop = asyncio.get_running_loop()
    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        directory = await Directory.read(cluster)
        for bookie_id in bookie_ids(env, bookies):
            item = await bookie_item(env, cluster, directory, bookie_id)
            row: dict[str, object] = {"bookie_id": bookie_id, "answers": False, "milliseconds": None}
            row |= {"address": item["address"], "disk": None, "error": None}
            rows.append(row)
            if item["address"] is None:
                row["error"] = "not registered"
                continue
            started = loop.time()
            try:
                row["disk"] = await disk_by_wire(item["address"], bookie_id)
            except BkctlError as e:
                row["error"] = e.message
            else:
                row |= {"answers": True, "milliseconds": round((loop.time() - started) * 1000, 3)}
    if not all(row["answers"] for row in rows):
        env.exit = Exit.FINDINGS
    return rows
