"""`bkctl autorecovery status`: shows the state of auto recovery."""

from __future__ import annotations

from bkctl.cli.autorecovery._notes import open_board, open_switch, result_item, switch_item
from bkctl.cli.autorecovery._queue import cluster_of, items_of, open_queue
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl autorecovery status", "bkctl autorecovery status -o json"),
    columns=("enabled", "until", "reason", "auditor", "candidates", "delay_s", "queued", "in_work", "lost", "oldest"),
    wide=("by", "since", "takes_requests", "overdue", "last_check_all", "last_check_placement", "last_check_replicas"),
)
FIGURES = ("check", "ended", "ended_ms", "seconds", "by", "figures", "findings_count", "error")


async def run(env: Env) -> dict[str, object]:
    """Show the state of auto recovery, its auditor, its delay and its queue.

    `until`, `reason` and `by` describe a pause, or the last `disable` or `enable` with bkctl. `queued` are the
    ledgers that lack copies, `in_work` those of them that a worker has locked, `lost` those with entries that no bookie
    has, `oldest` the time of the oldest mark, `overdue` the marks older than underreplicatedLedgerRecoveryGracePeriod
    of the file given with -c. The times of the last checks are null for a check that never completed; `checks` are
    their results.
    """
    from bkctl.codec.recovery_notes import CheckName
    from bkctl.meta.election import Election
    from bkctl.meta.underreplication import Check

    async with cluster_of(env) as cluster:
        queue, board = open_queue(cluster), open_board(cluster)
        state = await open_switch(cluster).state()
        votes = await Election(cluster.store, cluster.root).votes()
        queued = in_work = 0
        times: list[int] = []
        async for items in items_of(env, queue):
            queued += len(items)
            in_work += sum(item["lock"] is not None for item in items)
            times += [item["ctime_ms"] for item in items if item["ctime_ms"] is not None]
        results = [await board.result(check) for check in CheckName]
        return {
            **switch_item(state),
            "auditor": votes[0].candidate if votes else None,
            "takes_requests": await board.auditor_listens(),
            "candidates": [vote.candidate for vote in votes],
            "delay_s": await queue.delay_s(),
            "queued": queued,
            "in_work": in_work,
            "lost": len(await board.lost_ids()),
            "overdue": _overdue(env, times),
            **moment("oldest", min(times, default=None)),
            **moment("last_check_all", await queue.check_time_ms(Check.ALL_LEDGERS)),
            **moment("last_check_placement", await queue.check_time_ms(Check.PLACEMENT_POLICY)),
            **moment("last_check_replicas", await queue.check_time_ms(Check.REPLICAS)),
            "checks": [{key: result_item(result)[key] for key in FIGURES} for result in results if result is not None],
        }


def _overdue(env: Env, times: list[int]) -> int | None:
    """Marks older than the configured grace period; null if none is configured."""
    import time

    from bkrecovery.settings import RecoverySettings

    grace_s = RecoverySettings.of(env.properties).recovery_grace_s
    if grace_s <= 0:
        return None
    since_ms = time.time_ns() // 1_000_000 - grace_s * 1000
    return sum(ctime_ms < since_ms for ctime_ms in times)
