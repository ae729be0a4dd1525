"""`bkctl audit explain`: explains the findings of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from bkctl.cli.audit._runs import RUN_HELP, SparkConf, run_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl audit explain", "bkctl audit explain audits/monday -o json", "bkctl audit explain BKC401"),
    columns=("code", "findings", "title", "next"),
    wide=("severity", "text"),
)


_CODE: Final = re.compile(r"(?i)bkc[0-9]+")


def run(
    env: Env,
    name: Annotated[str | None, typer.Argument(metavar="RUN|CODE", help=f"{RUN_HELP}; or a code")] = None,
    spark_conf: SparkConf = None,
) -> list[dict[str, object]]:
    """Explain each code that a run found, with the number of findings; or one code."""
    from bkinspect.audit.results import about_run, find_run
    from bkinspect.finding import explain

    if name is not None and _CODE.fullmatch(name) and not Path(name).exists():
        counts: dict[str, int | None] = {name.upper(): None}
    else:
        counts = about_run(find_run(run_of(env, name, spark_conf)))["counts"]
    items: list[dict[str, object]] = []
    for code, number in sorted(counts.items()):
        known = explain(code)
        words = {"title": known.title, "text": known.text, "next": known.next}
        items.append({"code": code, "severity": known.severity, "findings": number, **words})
    return items
