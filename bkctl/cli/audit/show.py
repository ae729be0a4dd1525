"""`bkctl audit show`: the findings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from bkctl.cli.audit._runs import Run, SparkConf, readable, run_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Listing, rfc3339

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl audit show",
        "bkctl audit show monday --code BKC401 -o jsonl",
        "bkctl audit show --ledger 5",
    ),
    columns=("code", "severity", "subject", "message"),
    wide=(
        *("ledger_id", "entry_id", "bookie_id", "file", "offset", "evidence", "next"),
        *("first_seen_ms", "last_seen_ms", "runs_seen", "suppressed"),
    ),
)


def run(
    env: Env,
    name: Run = None,
    code: Annotated[list[str] | None, typer.Option("--code", metavar="CODE", help="only these codes")] = None,
    ledger: Annotated[
        list[str] | None, typer.Option("--ledger", metavar="LEDGER", help="only these ledgers; - for stdin, @file")
    ] = None,
    spark_conf: SparkConf = None,
) -> Listing:
    """List the findings of a run, without Spark."""
    from bkinspect.audit.results import about_run, opened
    from bkinspect.finding import explain

    folder = readable(run_of(env, name, spark_conf))
    about = about_run(folder)
    for one in code or ():
        explain(one)
    wanted = [int(one) for one in env.ledger_ids(ledger or ())]

    def items() -> Iterator[dict[str, object]]:
        with opened(folder) as results:
            yield from results.findings(code or (), wanted)

    place = name if name is not None and ":/" in name else folder  # not the copy
    env.detail(f"{place}, {about['seconds']} s, report: {place}/report.html")
    return Listing(items(), as_of=rfc3339(about["as_of_ms"]), warnings=list(about["notes"]))
