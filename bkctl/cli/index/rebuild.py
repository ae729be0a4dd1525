"""`bkctl index rebuild`: rebuilds the indexes of a stopped bookie from its entry logs and journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.index._layout import IndexDirectory, layout
from bkctl.cli.progress import size_words
from bkctl.cli.render import Listing
from bkctl.errors import Refused

if TYPE_CHECKING:
    from bkinspect.finding import Finding
    from bkinspect.layout import Layout
    from bkrecovery.index_rebuild import PlacePlan, Rebuilt

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl index rebuild -c bk_server.conf --dry-run",
        "bkctl index rebuild -c bk_server.conf --yes",
        "bkctl index rebuild /data/index --yes",
    ),
    columns=("index_dir", "logs", "entries", "ledgers", "without_key", "fenced_here"),
    wide=("log_dir", "backups"),
    timeout_s=None,
)


def run(
    env: Env,
    directory: IndexDirectory = None,
    with_metadata: Annotated[
        bool, typer.Option("--with-metadata", help="omit ledgers that are not in the metadata store")
    ] = False,
) -> Listing:
    """Rebuild a stopped bookie's index from entry logs and journals.

    Writes new databases, locations and ledgers, and renames them into place; the old ones are kept as
    NAME.BACKUP-TIME. Master keys and fences are taken from the old ledgers database and from the journals. A ledger
    that has no key there gets an empty one, which the first client that writes replaces by its own; a ledger whose
    fence cannot be known is fenced. If the old ledgers database is lost, deleted ledgers return until the bookie's
    next garbage collection, unless --with-metadata asks the metadata store. If it is killed at any point, run it again.
    Refused (exit 3) while a bookie runs on the directories.
    """
    import asyncio

    from bkrecovery.index_rebuild import check_stopped, locked, plan, rebuild

    found = layout(env, directory)
    check_stopped(found)
    existing = asyncio.run(_existing(env, found)) if with_metadata else None
    env.confirm(_words(found, plan(found)))
    env.check_may_write("rebuilding an index")

    def report(finding: Finding) -> None:
        env.warn(finding.line)

    with locked(found):
        items = rebuild(found, existing=existing, step=env.detail, report=report)
    _tell(env, items)
    return Listing(items, warnings=env.warnings)


async def _existing(env: Env, found: Layout) -> set[int]:
    """The ledgers of the cluster that the bookie belongs to.

    Raises:
        Refused: a cookie names another cluster, or no cookie names one.
    """
    from bkinspect.data_dir import cookies

    from bkctl.codec.data_dir import CURRENT
    from bkctl.meta.cluster import read_instance_id

    own = {cookie.instance_id for _, cookie in cookies(folder / CURRENT for folder in found.all)}
    async with env.cluster() as cluster:
        ledgers = await cluster.ledgers()
        await cluster.store.sync(cluster.root)
        existing = {int(ledger_id) async for part in ledgers.ids() for ledger_id in part}
        instance = await read_instance_id(cluster.store, cluster.root)
    if instance is None or own != {instance}:
        belongs = ", ".join(sorted(map(str, own))) or "no cluster"
        raise Refused(
            f"{env.metadata_uri} is cluster {instance}, but the bookie's cookies name {belongs}",
            hint="without --with-metadata no ledger is left out",
        )
    return existing


def _words(found: Layout, plans: list[PlacePlan]) -> Plan:
    steps = []
    for one in plans:
        index = one.place.index
        if one.interrupted:
            steps.append(f"finish the interrupted rebuild of {index}")
        old = ", ".join(f"{name}: {state}" for name, state in one.old.items())
        steps.append(f"read {len(one.logs)} entry logs, {size_words(one.log_bytes)}, in {one.place.logs}")
        steps.append(f"write new databases and rename them into {index}; the old ones ({old}) are kept as backups")
    steps.insert(0, f"read master keys, fences and explicit LACs from the journals in {_joined(found)}")
    return Plan(f"rebuild the index in {', '.join(str(one.place.index) for one in plans)}", tuple(steps))


def _joined(found: Layout) -> str:
    return ", ".join(map(str, found.journals))


def _tell(env: Env, items: list[Rebuilt]) -> None:
    for item in items:
        env.note(f"{item.index_dir}: {item.entries:,} entries of {item.ledgers:,} ledgers from {item.logs} entry logs")
        for backup in item.backups:
            env.note(f"the old database is {backup}; remove it when the bookie is running again")
        if item.without_key:
            env.warn(
                f"{item.index_dir}: {item.without_key} ledgers have no master key: neither the old index nor a journal "
                "has it; the first client that writes to one binds its own"
            )
        if item.fenced_here:
            env.warn(
                f"{item.index_dir}: {item.fenced_here} ledgers are fenced, because it cannot be known whether they "
                "were: a writer of one has to open a new ledger"
            )
