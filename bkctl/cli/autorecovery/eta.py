"""`bkctl autorecovery eta`: when the queue will be empty."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.autorecovery._notes import open_board, open_switch
from bkctl.cli.autorecovery._queue import cluster_of, items_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.meta.underreplication import Underreplication

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery eta", "bkctl autorecovery eta --watch 60 -o json"),
    columns=("queued", "bytes", "unknown", "workers", "mb_per_s", "ledgers_per_s", "seconds", "done", "reason"),
    timeout_s=None,
)
WATCH_S = 10
MB = 1_000_000


async def run(
    env: Env,
    watch: Annotated[
        int,
        typer.Option(
            "--watch", metavar="SECONDS", min=0, help="seconds to watch the queue if no worker reports a rate"
        ),
    ] = WATCH_S,
) -> dict[str, object]:
    """Estimate when all ledgers in the queue are replicated, from bytes to copy and rate.

    The bytes are estimated from metadata; `unknown` are ledgers without an estimate: open ones, and those marked
    without a bookie. The rate is what bkctl's workers copied in the last half minute. Java's workers report no rate: if
    only they work, or all sizes are unknown, the queue is watched for a while and the repaired ledgers are counted.
    `seconds` is null if no estimate is possible; `reason` says why, or which method was used.
    """
    import asyncio

    from bkrecovery.eta import estimate

    async with cluster_of(env) as cluster:
        queue = open_queue(cluster)
        ledger_ids, size, unknown = await _measure(env, cluster, queue)
        enabled = (await open_switch(cluster).state()).enabled
        notes = await open_board(cluster).workers()
        bytes_per_s = sum(note.bytes_per_s for note in notes.values())
        ledgers_per_s = 0.0
        if enabled and ledger_ids and watch and (not bytes_per_s or unknown == len(ledger_ids)):
            start = time.monotonic()
            env.detail(f"watching the queue for {watch} s")
            await asyncio.sleep(watch)
            left = {ledger_id async for part in queue.markers() for ledger_id in part}
            ledgers_per_s = len(ledger_ids - left) / (time.monotonic() - start)
            ledger_ids &= left
    found = estimate(len(ledger_ids), size, unknown, bytes_per_s, ledgers_per_s, enabled=enabled)
    done_ms = None if found.seconds is None else int((time.time() + found.seconds) * 1000)
    return {
        "queued": len(ledger_ids),
        "bytes": size,
        "unknown": unknown,
        "workers": len(notes),
        "bytes_per_s": bytes_per_s,
        "mb_per_s": round(bytes_per_s / MB, 2),
        "ledgers_per_s": round(ledgers_per_s, 3),
        "seconds": None if found.seconds is None else round(found.seconds, 1),
        **moment("done", done_ms),
        "reason": found.reason,
    }


async def _measure(env: Env, cluster: ClusterAccess, queue: Underreplication) -> tuple[set[int], int, int]:
    """The marked ledgers, the bytes to copy for those with a known size, and the number of the others."""
    from bkrecovery.eta import bytes_to_copy

    ledgers = await cluster.ledgers()
    found: set[int] = set()
    size = unknown = 0
    async for items in items_of(env, queue):
        missing = {item["ledger_id"]: frozenset(item["missing_bookies"]) for item in items}
        found |= missing.keys()
        async for record in ledgers.read_many(missing, lambda *_: None):
            known = bytes_to_copy(record.metadata, missing[record.ledger_id])
            size += known or 0
            unknown += known is None
    return found, size, unknown
