"""The declaration of a verb: its effect, its table, its examples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

TIMEOUT_S_DEFAULT: Final = 60.0


@unique
class Effect(StrEnum):
    """The maximum effect of a command on a cluster or a disk. Shown in its help, enforced by Env and its store."""

    READS = "reads"
    PROBES = "probes"
    FENCES = "fences"
    WRITES = "writes"
    DELETES = "deletes"

    @property
    def meaning(self) -> str:
        """The description of the class."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Effect.READS: "changes and fences nothing",
    Effect.PROBES: "writes a test ledger and removes it again",
    Effect.FENCES: "stops the ledger's writer permanently; entries stay",
    Effect.WRITES: "changes data after showing a plan; nothing is lost",
    Effect.DELETES: "deletes data or metadata; asks for the object's name",
}


@dataclass(frozen=True, slots=True)
class Command:
    """The COMMAND of a verb module.

    Args:
        effect: the worst it may do.
        examples: whole command lines that work, at least one.
        columns: fields of a table row, in order; empty takes the fields of the first row.
        wide: fields that `-o wide`, `tsv` and `csv` add.
        name: the field that `-o name` prints; the first column where it is empty.
        timeout_s: for the whole command unless --timeout says otherwise; None where it may run for ever.
        asks: False where starting the command is consent enough: it runs a service, or touches only what it made.
        live: True draws rows of a table as they come, for commands that people watch.
        takes_back: True where SIGTERM ends it as ^C does, so that what it started is stopped again.
    """

    effect: Effect
    examples: tuple[str, ...]
    columns: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    name: str = ""
    timeout_s: float | None = TIMEOUT_S_DEFAULT
    asks: bool = True
    live: bool = False
    takes_back: bool = False

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns of the wide forms."""
        return self.columns + self.wide

    @property
    def name_column(self) -> str:
        """The field that names an item."""
        return self.name or (self.columns[0] if self.columns else "")
