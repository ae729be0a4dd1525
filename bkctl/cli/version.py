"""`bkctl version`: what is installed."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(effect=Effect.READS, examples=("bkctl version", "bkctl version -o json"), name="version")


@dataclass(frozen=True, slots=True)
class Versions:
    """What `version` answers."""

    version: str
    python: str
    platform: str


def run(env: Env) -> Versions:
    """Says which bkctl this is, and on what it runs."""
    import platform
    from importlib.metadata import version

    return Versions(version("bkctl"), platform.python_version(), platform.platform())
