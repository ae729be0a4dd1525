"""The checks: each a module here with one query plan, and the contract between them and the run.

A check is a module of this package with

    NAME      the word after --check
    CODES     the finding codes it may yield
    NEEDS     names of the tables it reads, see bkinspect.audit.schemas
    TEXT      one sentence: what it proves, and where its plan shuffles
    findings(tables: Tables) -> DataFrame    with the columns of schemas.FINDINGS, lazily; no collect()

and its name in CHECKS, without which it does not run. Modules are imported when they are asked for: `names` works
without Spark. What a check may rely on is said at `Tables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from bkctl.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bkinspect.audit.tables import Tables

CHECKS: Final[tuple[str, ...]] = (
    *("nodes", "cookies", "log_records", "digests", "indexes", "missing_ledgers", "missing_copies", "divergent_copies"),
    *(
        "surplus_copies",
        "growth",
        "early_close",
        "open_ledgers",
        "orphan_ledgers",
        "lost_bookies",
        "placement",
        "space",
    ),
)
"""Modules of this package, in the order they run and report."""

ASKED: Final[tuple[str, ...]] = ("ends",)
"""Those that run only where they are named: they look at less than the others do."""

OF_FILES: Final = frozenset({"log-records", "indexes", "space"})
"""Those that look into files alone: a run over running bookies spares itself their plans."""


class Check(Protocol):
    """What the run asks of a check's module."""

    NAME: str
    CODES: tuple[str, ...]
    NEEDS: tuple[str, ...]
    TEXT: str

    def findings(self, tables: Tables) -> DataFrame:
        """What is wrong, as rows of schemas.FINDINGS; a lazy plan over the tables."""


def names() -> tuple[str, ...]:
    """What --check may say."""
    return tuple(name.replace("_", "-") for name in (*CHECKS, *ASKED))


def load(wanted: Iterable[str] = ()) -> list[Check]:
    """The checks of these names, in the order of CHECKS and ASKED; all of CHECKS for none.

    Raises:
        NotFound: there is no such check.
    """
    chosen = {name.replace("-", "_") for name in wanted}
    for name in sorted(chosen - {*CHECKS, *ASKED}):
        raise NotFound(f"there is no check {name.replace('_', '-')}", hint=", ".join(names()))
    names_ = [name for name in (*CHECKS, *ASKED) if name in chosen] if chosen else CHECKS
    return [cast("Check", import_module(f"{__name__}.{name}")) for name in names_]
