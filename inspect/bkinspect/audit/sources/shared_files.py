"""Files that a run gives to its tasks: what to read, and the ledgers and digests of metadata.

A task reads them by their path where the run's folder is local. A task of a run on another file system cannot, for
Python workers have no Hadoop: the driver gives such a file to Spark (SparkContext.addFile, addArtifacts of Spark
Connect), which copies it to each executor once, and the option that names it is SHARED and the file's name.
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
"""The files that this process has shared; Spark's own copy of them is for its workers."""


def new_shared_file(name: str) -> Path:
    """A path for a file to share, in a private folder that is deleted when this process exits: an executor that
    starts late fetches it late."""
    folder = tempfile.mkdtemp(prefix="bkctl-shared-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / f"{uuid.uuid4().hex}-{name}"


def share(spark: SparkSession, file: Path) -> str:
    """Gives a file of new_shared_file to the tasks of a session; returns the option's value."""
    if is_connect(spark):
        spark.addArtifacts(str(file), file=True)
    else:
        spark.sparkContext.addFile(str(file))
    _OWN[file.name] = file
    return SHARED + file.name


def path_of(value: str) -> Path:
    """The path, in this process, of a file that an option names."""
    if not value.startswith(SHARED):
        return Path(value)
    name = value.removeprefix(SHARED)
    if name in _OWN:
        return _OWN[name]
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name))


def parquet_files(value: str) -> list[str]:
    """The Parquet files of an option: those of a folder, a file, or a shared file."""
    if value.startswith(SHARED) or Path(value).is_file():
        return [value]
    return [str(file) for file in sorted(Path(value).glob("*.parquet"))]
