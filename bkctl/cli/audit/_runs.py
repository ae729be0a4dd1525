"""Shared by the verbs of `audit`: the location of runs, and opening them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from bkctl.cli.env import Env
from bkctl.errors import UsageError

RUN_HELP = "the folder of a run, or one that holds runs (then the newest); default: the last one"
Run = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)]
RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN", help=RUN_HELP)]


SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="K=V", help="settings of Spark and Hadoop, for a RUN on another file system"),
]

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kKMG]|[kMG]i)B?(?:/s)?")
_UNITS: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def runs_dir(env: Env) -> Path:
    """Where runs are kept without --to."""
    return env.state_dir / "audits"


def run_of(env: Env, name: str | None, spark_conf: Sequence[str] | None, *, tables: bool = False) -> Path:
    """The folder of one run, as runs_of."""
    (folder,) = runs_of(env, [name], spark_conf, tables=tables)
    return folder


def runs_of(
    env: Env, names: Sequence[str | None], spark_conf: Sequence[str] | None, *, tables: bool = False
) -> list[Path]:
    """The folders that RUNs mean; a name that is not a path is searched among the runs without --to.

    A run on another file system is copied to a private folder: its findings, and with tables all of it.

    Raises:
        UsageError: a URI of a scheme that is not supported, or settings of Spark for runs of this machine.
        NotFound, Refused, Unavailable: as results.local_copy.
    """
    from bkinspect.audit.locations import run_place

    places = [runs_dir(env) if name is None else run_place("RUN", name) for name in names]
    remote = any(isinstance(place, str) for place in places)
    if spark_conf and not remote:
        raise UsageError("--spark-conf applies to a RUN on another file system")
    settings = settings_of(spark_conf or ())
    return [_copy(place, settings, tables) if isinstance(place, str) else _kept(env, place) for place in places]


def _copy(place: str, settings: Mapping[str, str], tables: bool) -> Path:
    from bkinspect.audit.results import local_copy
    from bkinspect.audit.session import hadoop
    from bkinspect.audit.storage import storage_at

    return local_copy(storage_at(place, *hadoop(settings)), tables=tables)


def _kept(env: Env, path: Path) -> Path:
    kept = runs_dir(env) / path
    return kept if not path.exists() and kept.exists() else path


def size_of(option: str, text: str) -> int:
    """Returns the bytes of 50MB, 50M, 50MiB or 52428800.

    Raises:
        UsageError: something else, or 0.
    """
    match = _SIZE.fullmatch(text)
    value = int(float(match[1]) * _UNITS[match[2]]) if match is not None else 0
    if value <= 0:
        raise UsageError(f"{option} {text}", hint="bytes: 50MB, 50MiB, 52428800")
    return value


def settings_of(settings: Sequence[str]) -> dict[str, str]:
    """The settings of --spark-conf.

    Raises:
        UsageError: one is not key=value.
    """
    for setting in settings:
        if "=" not in setting:
            raise UsageError(f"--spark-conf {setting}", hint="key=value")
    return dict(setting.split("=", 1) for setting in settings)


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
