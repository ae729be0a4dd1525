"""What the verbs of `audit` share: where runs are, and how they are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bkctl.cli.env import Env
from bkctl.errors import UsageError

RUN_HELP = "the folder of a run, or one that holds runs (then the newest); default: the last one"
Run = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)]
RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN", help=RUN_HELP)]


def runs_dir(env: Env) -> Path:
    """Where runs are kept without --to."""
    return env.state_dir / "audits"


def run_of(env: Env, name: str | None) -> Path:
    """The folder that RUN means; a name that is not a path is searched among the runs without --to.

    Raises:
        UsageError: a URI of another file system.
    """
    from bkinspect.audit.locations import local_path

    if name is None:
        return runs_dir(env)
    path = local_path("RUN", name)
    kept = runs_dir(env) / path
    return kept if not path.exists() and kept.exists() else path


def has_metadata_uri(env: Env) -> bool:
    """True where options, the environment or a configuration say where the metadata store is."""
    try:
        return bool(env.metadata_uri)
    except UsageError:
        return False


def readable(folder: Path) -> Path:
    """The run that a folder means, its tables found to be there: before anything is printed.

    Raises:
        NotFound, Corrupt, UsageError: as `results.opened`.
    """
    from bkinspect.audit.results import opened

    with opened(folder) as results:
        return results.folder
