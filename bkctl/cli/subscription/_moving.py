"""Shared by skip, clear and reset: the plan, and moving the subscription."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from bkctl.cli.confirm import Plan
from bkctl.cli.topic._acting import Request, Target, act, having, targets
from bkctl.cli.topic._topics import Access, opened, shown

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.cli.env import Env
    from bkctl.codec.managed_ledger import CursorState

COLUMNS = ("topic", "subscription", "backlog_before", "backlog", "mark_delete", "by")


async def move(
    env: Env,
    topic: str,
    subscription: str,
    what: str,
    request: Request,
    state_of: Callable[[Access, Target, ColdCursor], Awaitable[CursorState]],
) -> list[dict[str, object]]:
    """Moves a subscription on every partition: by a REST request to the owner, or by writing the new state."""
    from bkctl.log.acks import Acks

    async with opened(env, topic) as access:
        found = having(await targets(access, topic), subscription, topic)
        plans = []
        for target in found:
            cursor = target.log.cursors[subscription]
            state = await state_of(access, target, cursor)
            acks = Acks(target.log.ledgers, target.log.ledgers.before_first)
            acks.load(state)
            plans.append((target, state, cursor.acks.backlog(), acks.backlog()))
        steps = tuple(
            f"{t.name}: next entry after {shown(s.mark_delete)}, backlog {before} → {after}; {t.by}"
            for t, s, before, after in plans
        )
        unread = any(after < before for _, _, before, after in plans)
        env.confirm(Plan(f"{what} subscription {subscription} of {topic}", steps, subject=subscription, typed=unread))
        rows: list[dict[str, object]] = []
        for target, state, before, after in plans:
            by = await act(env, access, target, request, lambda edit, s=state: edit.set_cursor(subscription, s))  # type: ignore[misc]
            rows.append(
                {
                    "topic": target.name,
                    "subscription": subscription,
                    "backlog_before": before,
                    "backlog": after,
                    "mark_delete": shown(state.mark_delete),
                    "by": by,
                }
            )
        return rows
