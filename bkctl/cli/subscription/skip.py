"""`bkctl subscription skip`: skips entries of a subscription's backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.subscription._moving import COLUMNS, move
from bkctl.cli.topic._acting import Request, Target
from bkctl.cli.topic._topics import Access, Subscription, Topic
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.codec.managed_ledger import CursorState

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl subscription skip my-topic my-subscription 1",),
    columns=COLUMNS,
    name="subscription",
)


async def run(
    env: Env,
    topic: Topic,
    subscription: Subscription,
    count: Annotated[int, typer.Argument(metavar="COUNT", help="number of entries, per partition")],
) -> list[dict[str, object]]:
    """Acknowledge the oldest entries of a subscription's backlog."""
    from bkrecovery.cursor import skipped

    if count < 1:
        raise UsageError(f"{count} entries: not 1 or more")

    async def state(_: Access, target: Target, cursor: ColdCursor) -> CursorState:
        return skipped(target.log, cursor, count)

    request = Request("POST", ("subscription", subscription, "skip", count))
    return await move(env, topic, subscription, f"skip {count} entries of", request, state)
