"""`bkctl audit collect`: writes the facts of one bookie for `audit run --facts`; runs beside the bookie."""

from __future__ import annotations

import importlib.util
import os
from typing import Annotated, Final

import typer

from bkctl.cli.audit._runs import has_metadata_uri, size_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import NotFound, UsageError

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl audit collect --dirs /data/bookie1 --to s3a://audits/facts --metadata export.jsonl",
        "bkctl audit collect --dirs /data/journal --dirs /data/ledgers --to /mnt/audits/facts --rate-limit 50MB",
    ),
    columns=("bookie_id", "files_read", "files_kept", "bytes_read", "bytes_written", "seconds"),
    wide=("running", "digests_good", "digests_bad", "digests_unknown", "manifest"),
    timeout_s=None,
)
NICENESS: Final = 19
PACKAGES: Final = ("pyarrow", "numpy")
INSTALL: Final = "pip install 'bkctl[collect]'"


def run(
    env: Env,
    dirs: Annotated[list[str], typer.Option("--dirs", metavar="DIR", help="a bookie's directories")],
    to: Annotated[str, typer.Option("--to", metavar="URI", help="where the facts of all bookies are kept")],
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="URI|FILE|DIR|none", help="passwords of ledgers, for their digests"),
    ] = None,
    rate_limit: Annotated[
        str | None, typer.Option("--rate-limit", metavar="BYTES", help="bytes to read each second: 50MB; default: all")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="read entry logs again that were read before")] = False,
) -> dict[str, object]:
    """Write the facts of one bookie below URI.

    Reads entry logs, journals and indexes of the bookie, which may run, at low priority on one core, without Spark.
    Entry logs that an earlier collection has read are not read again. `audit run --facts URI` checks the facts of
    all bookies.
    """
    limit = None if rate_limit is None else size_of("--rate-limit", rate_limit)
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"audit collect needs {package}", hint=INSTALL)
    from bkinspect.audit.arrow_storage import collectors_storage
    from bkinspect.audit.collector import Collection, RateLimit, collect
    from bkinspect.audit.locations import FACTS_SCHEMES, local_path, run_place

    run_place("--to", to, FACTS_SCHEMES)
    folders = tuple(local_path("--dirs", text) for text in dirs)
    for folder in folders:
        if not folder.is_dir():
            raise NotFound(f"directory does not exist: {folder}")
    where = _metadata(env, metadata)
    _lower_priority()  # before a JVM starts
    storage = collectors_storage("--to", to)
    request = Collection(folders, storage, where, full)
    outcome = collect(request, RateLimit(limit), env.detail)
    manifest = outcome.manifest
    return {
        "bookie_id": manifest.bookie_id,
        "files_read": outcome.files_read,
        "files_kept": outcome.files_kept,
        "bytes_read": outcome.bytes_read,
        "bytes_written": outcome.bytes_written,
        "seconds": round(outcome.seconds, 3),
        "running": manifest.running,
        **{f"digests_{name}": count for name, count in manifest.digests.items()},
        "manifest": str(storage / outcome.name),
    }


def _metadata(env: Env, text: str | None) -> str | None:
    """Where ledgers' digest types and passwords are read; None for nowhere."""
    from bkinspect.audit.locations import metadata_place

    if text == "none" or (text is None and not has_metadata_uri(env)):
        return None
    return env.metadata_uri if text is None else metadata_place("--metadata", text)


def _lower_priority() -> None:
    """Makes this process yield to the bookie, and Arrow use one thread."""
    import pyarrow as pa

    os.nice(NICENESS)
    pa.set_cpu_count(1)
