"""Shared by the verbs of `dev`: the cluster's directory, and the form of its services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.config import LOCAL_CLUSTER_FILE
from bkctl.cli.env import Env
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkdaemon.local.cluster import LocalCluster, Service

KINDS: Final = ("bookie", "broker", "zookeeper")
COLUMNS: Final = ("service", "state", "bookie_id", "pid", "directory")
WIDE: Final = ("port", "http_port", "grpc_port", "service_url", "log")

Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="the cluster's directory; default: the one started last")
]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="bookie, broker, or zookeeper")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="1, 2, …")]


def directory_of(env: Env, given: Path | None) -> Path:
    """--dir, or the directory of the cluster started last, or a default directory."""
    if given is not None:
        return given.absolute()
    try:
        state = json.loads((env.state_dir / LOCAL_CLUSTER_FILE).read_text(encoding="utf-8"))
        return Path(state["directory"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return env.state_dir / "cluster"


def open_local(env: Env, given: Path | None) -> LocalCluster:
    """The cluster of a directory."""
    from bkdaemon.local.cluster import LocalCluster

    return LocalCluster.load(directory_of(env, given), env.environ)


def announce(env: Env, cluster: LocalCluster) -> None:
    """Records the cluster's URI as the default of later commands."""
    from bkctl.world import PrivateDisk

    disk = PrivateDisk()
    disk.make_dirs(env.state_dir)
    state = {"metadata_uri": cluster.metadata_uri, "directory": str(cluster.directory)}
    disk.replace(env.state_dir / LOCAL_CLUSTER_FILE, (json.dumps(state) + "\n").encode())


def withdraw(env: Env, cluster: LocalCluster) -> None:
    """Deletes the recorded URI if it is this cluster's."""
    if directory_of(env, None) == cluster.directory:
        (env.state_dir / LOCAL_CLUSTER_FILE).unlink(missing_ok=True)


def check_kind(kind: str) -> str:
    """Returns the kind if it is valid.

    Raises:
        UsageError: it is not a kind of service.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of service", hint=" or ".join(KINDS))
    return kind


def row(service: Service) -> dict[str, object]:
    """One service as an item."""
    is_bookie = service.kind == "bookie"
    return {
        "service": service.name,
        "kind": service.kind,
        "number": service.number,
        "state": "running" if service.running else "stopped",
        "bookie_id": service.bookie_id if is_bookie else None,
        "pid": service.pid if service.running else None,
        "port": service.port,
        "http_port": service.http_port if service.kind != "zookeeper" else None,
        "grpc_port": service.admin_port if is_bookie else None,
        "service_url": f"pulsar://127.0.0.1:{service.port}" if service.kind == "broker" else None,
        "directory": service.directory,
        "log": service.log,
    }
