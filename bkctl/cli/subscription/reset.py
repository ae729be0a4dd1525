"""`bkctl subscription reset`: moves a subscription to a position or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.subscription._moving import COLUMNS, move
from bkctl.cli.topic._acting import Request, Target, message_id, place_or_time
from bkctl.cli.topic._topics import Access, Subscription, Topic

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.codec.managed_ledger import CursorState

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl subscription reset my-topic my-subscription --to earliest",
        "bkctl subscription reset my-topic my-subscription --to 2026-11-21T16:00:00Z",
    ),
    columns=COLUMNS,
    name="subscription",
)


async def run(
    env: Env,
    topic: Topic,
    subscription: Subscription,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="earliest, latest, LEDGER:ENTRY, RFC 3339 time, ms since 1970")
    ],
) -> list[dict[str, object]]:
    """Move a subscription to a position, or to the first message published at a time or later.

    Acknowledged messages after the position are delivered again; consumers are disconnected and reconnect.
    """
    from bkrecovery.cursor import first_published, moved

    where = place_or_time(to)

    async def state(access: Access, target: Target, cursor: ColdCursor) -> CursorState:
        at = await first_published(access.bookkeeper, target.log, where) if isinstance(where, int) else where
        return moved(target.log, cursor, at)

    parts: tuple[str | int, ...] = ("subscription", subscription, "resetcursor")
    if isinstance(where, int):
        request = Request("POST", (*parts, where))
    else:
        request = Request("POST", parts, message_id(where))
    return await move(env, topic, subscription, f"move to {to}", request, state)
