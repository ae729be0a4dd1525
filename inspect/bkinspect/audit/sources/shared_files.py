"""Shares files of a run with its tasks: the plan of a scan, and the ledgers and digests of metadata.

If the run's folder is local, tasks read the files by their paths. If it is on another file system they cannot, because
Python workers have no Hadoop: the driver adds such a file to Spark (SparkContext.addFile, addArtifacts of Spark
Connect), which copies it to each executor once, and the option that names it is SHARED and the name of the file.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkinspect.audit.masters import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED: Final = "spark-file:"
_OWN: dict[str, Path] = {}
"""The files that this process has shared, by name; it reads them directly, not Spark's copies for the workers."""


def new_shared_file(name: str) -> Path:
    """Returns a path for a file to share, in a private folder that is deleted when this process exits.

    The file must exist until then, because an executor that starts late fetches it late.
    """
    folder = tempfile.mkdtemp(prefix="bkctl-shared-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / f"{uuid.uuid4().hex}-{name}"


def share(spark: SparkSession, file: Path) -> str:
    """Shares a file of new_shared_file with the tasks of a session; returns the value of the option that names it."""
    if is_connect(spark):
        spark.addArtifacts(str(file), file=True)
    else:
        spark.sparkContext.addFile(str(file))
    _OWN[file.name] = file
    return SHARED + file.name


def path_of(value: str) -> Path:
    """Returns the path, in this process, of a file that an option names."""
    if not value.startswith(SHARED):
        return Path(value)
    name = value.removeprefix(SHARED)
    if name in _OWN:
        return _OWN[name]
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name))


def parquet_files(value: str) -> list[str]:
    """Returns the Parquet files that an option names: those of a folder, a file, or a shared file."""
    if value.startswith(SHARED) or Path(value).is_file():
        return [value]
    return [str(file) for file in sorted(Path(value).glob("*.parquet"))]
