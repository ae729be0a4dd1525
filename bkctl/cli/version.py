"""`bkctl version`: shows the installed version."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(effect=Effect.READS, examples=("bkctl version", "bkctl version -o json"), name="version")


@dataclass(frozen=True, slots=True)
class Versions:
    """The output of `version`."""

    version: str
    python: str
    platform: str


def run(env: Env) -> Versions:
    """Show the versions of bkctl, Python and its libraries."""
    import platform
    from importlib.metadata import version

    return Versions(version("bkctl"), platform.python_version(), platform.platform())
