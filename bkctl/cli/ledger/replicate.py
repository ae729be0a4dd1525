"""`bkctl ledger replicate`: re-replicates ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.jobs import (
    COLUMNS,
    JobArguments,
    blocked_item,
    job_session,
    missing_item,
    missing_ledgers,
)
from bkctl.cli.ledger import _client as client
from bkctl.cli.ledger._items import Ledgers
from bkctl.model.ids import parse_bookie_id

if TYPE_CHECKING:
    from bkrecovery.job import MoveJob

    from bkctl.model.ledger import DigestType

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl ledger replicate 5 --dry-run",
        "bkctl ledger replicate 5 6 --rate 50MB --yes -o json",
        "bkctl ledger replicate 5 --bookie 10.0.0.1:3181 --to 10.0.0.7:3181 --yes",
        "bkctl autorecovery queue list -o name | bkctl ledger replicate - --yes",
    ),
    columns=COLUMNS,
    name="ledger_id",
    timeout_s=None,
)


Percentage: TypeAlias = Annotated[
    int,
    typer.Option(
        "--percentage",
        metavar="P",
        min=0,
        max=100,
        help="percentage of entries to check on each bookie; 0: two entries",
    ),
]


async def run(
    env: Env,
    ledgers: Ledgers,
    bookie: Annotated[
        list[str] | None, typer.Option("--bookie", metavar="BOOKIE", help="move copies off this bookie, running or not")
    ] = None,
    fence_open: Annotated[
        bool, typer.Option("--fence-open", help="fence and close open ledgers whose last fragment lacks copies")
    ] = False,
    percentage: Percentage = 100,
    digest: client.KnownDigest = None,
    password_file: client.PasswordFile = None,
    *,
    arguments: JobArguments,
) -> list[dict[str, object]]:
    """Restore the missing copies of ledgers.

    Every bookie is checked for every entry it should have (fewer with --percentage). Missing entries are copied from
    the other replicas to another bookie, with their digests checked, and the ensemble is changed by compare-and-set;
    without another bookie they are copied to their own bookie. The last fragment of an open ledger is skipped, exit 1;
    --fence-open recovers the ledger first, which stops its writer permanently. Exit 1 also if entries cannot be read
    from any bookie, with reasons. --password-file (BKCTL_LEDGER_PASSWORD) and --digest are for ledgers whose metadata
    has none (format 1).
    """
    from bkrecovery.job import JobOptions
    from bkrecovery.plan import OpenLedgers
    from bkrecovery.replicate import ReplicateJob

    secret, given = client.password_of(env, None, password_file), client.digest_of(digest)
    ids = [parse_bookie_id(name) for name in bookie or ()]
    only = sorted(set(env.ledger_ids(ledgers)))
    options = JobOptions(OpenLedgers.FENCE if fence_open else OpenLedgers.LEAVE)
    subjects = [*map(str, only), *ids]
    async with (
        env.cluster() as cluster,
        job_session(
            env, cluster, "ledger replicate", ids, arguments, options, subjects=subjects, job_class=ReplicateJob
        ) as session,
    ):
        assert isinstance(session.job, ReplicateJob)
        session.job.percentage, session.job.password, session.job.digest_type = percentage, secret, given
        await _check_digests(session.job, only, given)
        missing = await missing_ledgers(session.job.bookkeeper.ledgers, only)
        plan = await session.plan(only)
        if not plan.moves and not plan.blocked:
            env.note("no copies are missing")
            items: list[dict[str, object]] = []
        else:
            env.confirm(session.words(f"replicate {len(only)} ledgers", plan))
            session.begin()
            items = await session.work(plan)
            left = await session.job.plan(only)
            known = {item["ledger_id"] for item in items if item["error"] is not None}
            still = {move.ledger_id for move in left.moves} | {ledger_id for ledger_id, _ in left.blocked}
            items += [blocked_item(e, "copies are still missing, or missing again") for e in sorted(still - known)]
        items += [missing_item(e) for e in missing]
        if items:
            session.finish(items)
    return items


async def _check_digests(job: MoveJob, ledger_ids: Sequence[int], given: DigestType | None) -> None:
    """Raises UsageError if --digest differs from a ledger's metadata; the plan reports broken metadata."""
    if given is not None:
        async for record in job.bookkeeper.ledgers.read_many(ledger_ids, lambda *_: None):
            client.check_digest(given, record.metadata, record.ledger_id)
