"""Acting on several objects: a failure of one does not prevent the others."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING

from bkctl.cli.ledger._items import is_one
from bkctl.errors import BkctlError, Exit

if TYPE_CHECKING:
    from bkctl.cli.env import Env


async def attempt(env: Env, given: Sequence[str], name: str, work: Awaitable[object]) -> None:
    """Acts on one of several objects; a failure is a warning, and the command exits with 1.

    Raises:
        BkctlError: the action fails, and only one object was given.
    """
    try:
        await work
    except BkctlError as error:
        if is_one(given):
            raise
        env.warn(f"{name}: {error.message}")
        env.exit = Exit.FINDINGS


def all_of(names: Collection[str], what: str) -> str:
    """The subject of a plan, to be typed for confirmation: the only name, or the number of objects."""
    return next(iter(names)) if len(names) == 1 else f"{len(names)} {what}"
