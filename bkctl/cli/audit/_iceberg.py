"""The options of `audit run` for Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkinspect.audit.iceberg import Target

PARQUET: Final = "parquet"
ICEBERG: Final = "iceberg"
TableFormat = Annotated[
    str, typer.Option("--table-format", metavar="parquet|iceberg", help="iceberg: write tables of --catalog as well")
]
Catalog = Annotated[str | None, typer.Option("--catalog", metavar="NAME", help="catalog of spark.sql.catalog.NAME")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="of the tables; one a cluster; default bookkeeper")
]


def target_of(table_format: str, catalog: str | None, namespace: str | None) -> Target | None:
    """Where Iceberg tables are written; None for Parquet alone.

    Raises:
        UsageError: the options do not go together, or a name is not valid.
    """
    if table_format not in (PARQUET, ICEBERG):
        raise UsageError(f"--table-format {table_format}", hint=f"one of {PARQUET}, {ICEBERG}")
    if table_format == PARQUET:
        for option, value in (("--catalog", catalog), ("--namespace", namespace)):
            if value is not None:
                raise UsageError(f"{option} requires --table-format {ICEBERG}")
        return None
    if catalog is None:
        raise UsageError(f"--table-format {ICEBERG} requires --catalog NAME", hint="--catalog lake")
    from bkinspect.audit.iceberg import NAMESPACE, Target

    return Target(catalog, NAMESPACE if namespace is None else namespace)
