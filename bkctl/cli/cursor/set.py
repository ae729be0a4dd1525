"""`bkctl cursor set`: overwrites or restores a cursor's state."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._acting import Target, targets
from bkctl.cli.topic._topics import Subscription, Topic, opened, parse_position, shown
from bkctl.errors import Corrupt, NotFound, Refused, UsageError

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.codec.managed_ledger import CursorState
    from bkctl.model.topic import Position

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl cursor set my-topic my-subscription --mark-delete 12:41",
        "bkctl cursor set my-topic my-subscription --restore ~/.local/state/bkctl/cursors/….json",
    ),
    columns=("topic", "cursor", "mark_delete", "backlog_before", "backlog", "backup"),
    name="cursor",
)


async def run(
    env: Env,
    topic: Topic,
    cursor: Subscription,
    mark_delete: Annotated[
        str | None, typer.Option("--mark-delete", metavar="LEDGER:ENTRY", help="acknowledge everything up to here")
    ] = None,
    restore: Annotated[
        Path | None, typer.Option("--restore", metavar="FILE", help="the state that an earlier `cursor set` replaced")
    ] = None,
) -> dict[str, object]:
    """Write the state of a cursor of an unloaded topic.

    The previous state is written to a backup file first. --mark-delete L:E acknowledges all entries up to and including
    E and none after it (L:-1 is before L's first entry). Refused while the topic is loaded: use `topic unload` first,
    or `subscription reset`. If another client changes the cursor or loads the topic meanwhile, nothing is written (exit
    5). A partitioned topic: one partition at a time.
    """
    from bkrecovery.cursor import Edit, is_loaded

    from bkctl.log.acks import Acks

    if (mark_delete is None) == (restore is None):
        raise UsageError("either --mark-delete or --restore is required")
    wanted = parse_position(mark_delete) if mark_delete is not None else None
    async with opened(env, topic) as access:
        target = _one(await targets(access, topic), topic, cursor)
        log, before = target.log, target.log.cursors[cursor]
        if is_loaded(log, target.owner):
            assert target.owner is not None
            raise Refused(
                f"{target.name} is loaded by broker {target.owner.broker_id}, which caches the cursor",
                hint="run bkctl topic unload first, or use bkctl subscription reset",
            )
        state = (
            _state(log.cursors[cursor], wanted) if wanted is not None else _restored(restore, log.topic.path, cursor)
        )
        after = Acks(log.ledgers, log.ledgers.before_first)
        after.load(state)
        if wanted is not None and wanted != after.mark_delete:
            raise UsageError(
                f"{shown(wanted)} is not a valid position in {target.name}; the nearest is {shown(after.mark_delete)}",
                hint=f"bkctl topic map {topic}",
            )
        old, new = before.acks.backlog(), after.backlog()
        step = f"mark-delete {shown(before.acks.mark_delete)} → {shown(state.mark_delete)}, backlog {old} → {new}"
        env.confirm(Plan(f"set cursor {cursor} of {target.name}", (step,), subject=cursor, typed=new < old))
        backup = _back_up(env, target, before)
        await Edit(access.stores, access.bookkeeper, log).set_cursor(cursor, state)
    return {
        "topic": target.name,
        "cursor": cursor,
        "mark_delete": shown(after.mark_delete),
        "backlog_before": old,
        "backlog": new,
        "backup": str(backup),
    }


def _one(found: list[Target], topic: str, cursor: str) -> Target:
    if len(found) != 1:
        raise UsageError(f"{topic} has {len(found)} partitions", hint=f"bkctl cursor set {topic}-partition-0 …")
    if cursor not in found[0].log.cursors:
        raise NotFound(f"{topic} has no cursor {cursor}", hint=f"bkctl cursor list {topic}")
    return found[0]


def _state(before: ColdCursor, mark_delete: Position) -> CursorState:
    from bkctl.codec.managed_ledger import CursorState

    return CursorState(mark_delete, longs=dict(before.state.longs))


def _back_up(env: Env, target: Target, cursor: ColdCursor) -> Path:
    """Writes the state that is replaced to a backup file."""
    from bkctl.codec.managed_ledger import encode_cursor_state
    from bkctl.world import PrivateDisk

    folder = env.state_dir / "cursors"
    disk = PrivateDisk()
    disk.make_dirs(folder)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = folder / f"{target.log.topic.encoded_local}-{stamp}-{cursor.version}.json"
    value = {
        "managed_ledger": target.log.topic.path,
        "cursor": cursor.name,
        "version": cursor.version,
        "mark_delete": shown(cursor.state.mark_delete),
        "state": base64.b64encode(encode_cursor_state(cursor.state)).decode(),
    }
    disk.replace(path, (json.dumps(value, indent=2) + "\n").encode())
    return path


def _restored(path: Path | None, managed_ledger: str, cursor: str) -> CursorState:
    """The state of a backup.

    Raises:
        Corrupt: it is not a backup. UsageError: it is a backup of another cursor.
    """
    from bkctl.codec.managed_ledger import decode_cursor_state

    assert path is not None
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = (value["managed_ledger"], value["cursor"])
        state = decode_cursor_state(base64.b64decode(value["state"]), source=str(path))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            "not a backup of a cursor", source=str(path), offset=0, expected="a file of `cursor set`", found=str(error)
        ) from None
    if found != (managed_ledger, cursor):
        raise UsageError(f"{path} is a backup of cursor {found[1]} of {found[0]}")
    return state
