"""`bkctl topic trim`: deletes consumed ledgers of topics now."""

from __future__ import annotations

import time

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import attempt
from bkctl.cli.topic._acting import Request, Target, act, targets_of_each
from bkctl.cli.topic._topics import Access, Topics, opened, retention_of
from bkctl.errors import Unavailable

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl topic trim my-topic", "bkctl topic trim my-topic --dry-run"),
    columns=("topic", "ledgers", "size", "by"),
    timeout_s=None,
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Delete ledgers that all subscriptions have consumed and retention does not keep.

    See `topic why-kept`. The owner broker trims a topic, by its own retention. A topic without an owner is trimmed in
    the metadata, by the namespace's retention, or broker.conf's default of none; the last ledger stays. ledgers are the
    deleted ones. If too few bookies answer to read a subscription's acknowledgments, only an owner can trim.
    """
    names = list(env.names(topics))
    rows: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        every = (await targets_of_each(env, access, topics, names, whole=False)).values()
        found = [(target, await _deletable(access, target)) for targets in every for target in targets]
        work = [(target, gone) for target, gone in found if gone or target.owner is not None]
        if work:
            steps = tuple(f"{t.name}: {_listed(gone)}; {t.by}" for t, gone in work)
            env.confirm(Plan(f"trim {len(work)} topics", steps, subject="trim"))
        for target, gone in found:
            await attempt(env, topics, target.name, _trim(env, access, target, gone, rows))
    return rows


async def _trim(env: Env, access: Access, target: Target, gone: list[int], rows: list[dict[str, object]]) -> None:
    silent = target.log.silent
    if silent and target.owner is None:
        raise Unavailable(f"the acknowledgments of {silent[0].name} are unknown: {silent[0].unknown}")
    by = None
    if gone or target.owner is not None:
        by = await act(env, access, target, Request("POST", ("trim",)), lambda edit: edit.drop_ledgers(gone))
    left = {one.ledger_id for one in (await access.stores.ledgers.read(target.log.topic.path)).info.ledgers}
    went = [ledger_id for ledger_id in target.log.ledgers.ids if ledger_id not in left]
    size = sum(target.log.ledgers.size(i) for i in went)
    rows.append({"topic": target.name, "ledgers": went, "size": size, "by": by})


def _listed(gone: list[int]) -> str:
    return f"delete ledgers {', '.join(map(str, gone))}" if gone else "delete ledgers by the broker's own settings"


async def _deletable(access: Access, target: Target) -> list[int]:
    from bkctl.log.trimming import judge

    log = target.log
    if log.silent:
        return []
    policies = await access.stores.namespaces.policies(log.topic.namespace_name)
    verdicts = judge(log.ledgers, log.marks, retention_of(policies), time.time_ns() // 1_000_000)
    last = log.ledgers.ids[-1:]
    return [v.ledger_id for v in verdicts if v.kept is None and v.ledger_id not in last]
