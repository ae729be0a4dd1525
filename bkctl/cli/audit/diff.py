"""`bkctl audit diff`: compares the findings of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from bkctl.cli.audit._runs import RUN_HELP, SparkConf, readable, runs_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Listing
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl audit diff audits/monday audits/tuesday", "bkctl audit diff audits/1 audits/2 -o jsonl"),
    columns=("change", "code", "severity", "subject", "message"),
    wide=("ledger_id", "entry_id", "bookie_id", "file", "offset", "evidence", "next"),
)


def run(
    env: Env,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=RUN_HELP)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=RUN_HELP)],
    spark_conf: SparkConf = None,
) -> Listing:
    """List findings that only one of two runs has. Exit 1: there are new findings."""
    from bkinspect.audit.results import difference, opened

    one, other = map(readable, runs_of(env, (before, after), spark_conf))

    def items() -> Iterator[dict[str, object]]:
        with opened(one) as first, opened(other) as second:
            for item in difference(first, second):
                if item["change"] == "new":
                    env.exit = Exit.FINDINGS
                yield item

    return Listing(items())
