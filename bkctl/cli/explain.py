"""`bkctl explain`: explains the code of a finding."""

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
    codes: Annotated[
        list[str] | None, typer.Argument(metavar="CODE…", help="such as BKC103; default: all codes")
    ] = None,
) -> object:
    """Explain the code of a finding: meaning, possible data loss, next step."""
    from bkinspect.finding import CODES, explain

    found = [explain(code) for code in env.names(codes or ())]
    if not codes:
        return list(CODES.values())
    return found[0] if len(found) == 1 else found
