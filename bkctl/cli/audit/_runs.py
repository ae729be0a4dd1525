"""What the verbs of `audit` share: where runs are, and how they are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bkctl.cli.env import Env

RUN_HELP = "the folder of a run, or one that holds runs (then the newest); default: the last one"
Run = Annotated[Path | None, typer.Argument(metavar="RUN", help=RUN_HELP)]
RunOption = Annotated[Path | None, typer.Option("--run", metavar="RUN", help=RUN_HELP)]


def runs_dir(env: Env) -> Path:
    """Where runs are kept without --to."""
    return env.state_dir / "audits"


def run_of(env: Env, name: Path | None) -> Path:
    """The folder that RUN means; a name that is no path is looked for among the runs without --to."""
    if name is None:
        return runs_dir(env)
    kept = runs_dir(env) / name
    return kept if not name.exists() and kept.exists() else name


def readable(folder: Path) -> Path:
    """The run that a folder means, its tables found to be there: before anything is printed.

    Raises:
        NotFound, Corrupt, UsageError: as `results.opened`.
    """
    from bkinspect.audit.results import opened

    with opened(folder) as results:
        return results.folder
