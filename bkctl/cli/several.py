"""Doing one thing to several: what fails does not keep the others from being done."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING

from bkctl.cli.ledger._items import is_one
from bkctl.errors import BkctlError, Exit

if TYPE_CHECKING:
    from bkctl.cli.env import Env


async def attempt(env: Env, given: Sequence[str], name: str, work: Awaitable[object]) -> None:
    """Does one of the things that were given; if it fails, it is a warning, and the command ends with exit 1.

    Raises:
        BkctlError: it fails, and is the only one.
    """
    try:
        await work
    except BkctlError as error:
        if is_one(given):
            raise
        env.warn(f"{name}: {error.message}")
        env.exit = Exit.FINDINGS


def all_of(names: Collection[str], what: str) -> str:
    """What a plan calls them, and what has to be typed: the only one's name, or how many they are."""
    return next(iter(names)) if len(names) == 1 else f"{len(names)} {what}"
