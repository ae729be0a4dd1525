"""`bkctl subscription clear`: clears the backlog of a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.subscription._moving import COLUMNS, move
from bkctl.cli.topic._acting import Request, Target
from bkctl.cli.topic._topics import Access, Subscription, Topic
from bkctl.model.topic import LATEST

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.codec.managed_ledger import CursorState

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl subscription clear my-topic my-subscription",),
    columns=COLUMNS,
    name="subscription",
)


async def run(env: Env, topic: Topic, subscription: Subscription) -> list[dict[str, object]]:
    """Acknowledge the whole backlog of a subscription, which continues with the next message sent."""
    from bkrecovery.cursor import moved

    async def state(_: Access, target: Target, cursor: ColdCursor) -> CursorState:
        return moved(target.log, cursor, LATEST)

    request = Request("POST", ("subscription", subscription, "skip_all"))
    return await move(env, topic, subscription, "clear the backlog of", request, state)
