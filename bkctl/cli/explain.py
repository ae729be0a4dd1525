"""`bkctl explain`: what the code of a finding means."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl explain BKC103", "bkctl explain"),
    columns=("code", "severity", "title"),
    wide=("text", "next"),
)


def run(
    env: Env,
    codes: Annotated[list[str] | None, typer.Argument(metavar="CODE…", help="such as BKC103; none lists all")] = None,
) -> object:
    """Explains the code of a finding: what it means, whether data is lost, what to do next."""
    from bkinspect.finding import CODES, explain

    found = [explain(code) for code in env.names(codes or ())]
    if not codes:
        return list(CODES.values())
    return found[0] if len(found) == 1 else found
