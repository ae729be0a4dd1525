"""`bkctl audit sql`: queries the tables of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated

import typer

from bkctl.cli.audit._runs import RunOption, SparkConf, readable, run_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Listing, rfc3339

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl audit sql 'select code, count(*) as n from findings group by code'",
        "bkctl audit sql 'select topic, sum(size) as bytes from topics group by 1 order by 2 desc limit 10' -o json",
        "bkctl audit sql 'select bookie_id, count(distinct (ledger_id, entry_id)) as copies from entries group by 1'",
        "bkctl audit sql 'describe entries'",
    ),
)


def run(
    env: Env,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="one SELECT of DuckDB's, over this run's files")],
    name: RunOption = None,
    spark_conf: SparkConf = None,
) -> Listing:
    """Query the tables of a run with SQL.

    Tables: findings, ledgers, fragments, entries, index, bookies, topics and others; `describe TABLE` lists columns.
    One copy can have several rows in entries (a journal, a log, two logs after a compaction): count with distinct
    (ledger_id, entry_id, bookie_id).
    """
    from bkinspect.audit.results import about_run, opened

    folder = readable(run_of(env, name, spark_conf, tables=True))

    def items() -> Iterator[dict[str, object]]:
        with opened(folder) as results:
            yield from results.query(sql)

    rows = items()
    first = list(islice(rows, 1))  # an error comes before anything is printed
    return Listing(chain(first, rows), as_of=rfc3339(about_run(folder)["as_of_ms"]))
