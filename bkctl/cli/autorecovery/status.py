"""`bkctl autorecovery status`: is it on, who audits, how much waits."""

from __future__ import annotations

from bkctl.cli.autorecovery._queue import items_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery status", "bkctl autorecovery status -o json"),
    columns=("enabled", "auditor", "candidates", "delay_s", "queued", "in_work", "oldest"),
    wide=("last_check_all", "last_check_placement", "last_check_replicas"),
)


async def run(env: Env) -> dict[str, object]:
    """Shows whether auto recovery is on, who the auditor is, the delay, and what waits for a replication worker.

    `queued` are the ledgers that lack copies, `in_work` those of them that a worker has locked, `oldest` the time of
    the oldest mark. The times of the last checks are null where one never ran to its end.
    """
    from bkctl.meta.election import Election
    from bkctl.meta.underreplication import Check

    async with env.cluster() as cluster:
        queue = open_queue(cluster)
        votes = await Election(cluster.store, cluster.root).votes()
        queued = in_work = 0
        oldest_ms: int | None = None
        async for items in items_of(queue):
            queued += len(items)
            in_work += sum(item["lock"] is not None for item in items)
            times = [item["ctime_ms"] for item in items if item["ctime_ms"] is not None]
            oldest_ms = min([*times, oldest_ms] if oldest_ms is not None else times, default=oldest_ms)
        return {
            "enabled": await queue.enabled(),
            "auditor": votes[0].candidate if votes else None,
            "candidates": [vote.candidate for vote in votes],
            "delay_s": await queue.delay_s(),
            "queued": queued,
            "in_work": in_work,
            **moment("oldest", oldest_ms),
            **moment("last_check_all", await queue.check_time_ms(Check.ALL_LEDGERS)),
            **moment("last_check_placement", await queue.check_time_ms(Check.PLACEMENT_POLICY)),
            **moment("last_check_replicas", await queue.check_time_ms(Check.REPLICAS)),
        }
