"""Opens the folder to which a collector writes: a local disk, an object store through pyarrow, or HDFS through a JVM.

A collector runs without Spark and uses the object store clients of pyarrow. For HDFS pyarrow needs Hadoop's native
library, which its wheels do not contain; so HDFS is accessed through the JVM and the jars of PySpark, as in a run.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import Any, BinaryIO, Final

from bkctl.errors import NotFound, Refused, Unavailable, UsageError
from bkinspect.audit.locations import FACTS_SCHEMES, run_place
from bkinspect.audit.session import hadoop
from bkinspect.audit.storage import BUFFER_SIZE, InputStream, Item, LocalStorage, OutputStream, Storage, storage_at

SCHEMES: Final[Mapping[str, str]] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""pyarrow's scheme by Hadoop's scheme."""
BY_JVM: Final = ("hdfs", "viewfs")
_NO_ACCESS: Final = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "HTTP Status 403")
_NO_BUCKET: Final = re.compile("NO_SUCH_BUCKET|Bucket '.*' not found")
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the URL of an S3 server other than AWS."""
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
"""The time in which S3 must send the next bytes of a response."""
ATTEMPTS_MAX: Final = 3
"""Attempts of each S3 request, the first included."""
_INSTALL: Final = "pip install 'bkctl[spark]'"


@dataclass(frozen=True)
class ArrowStorage(Storage):
    """A folder of a file system of pyarrow.

    Args:
        location: the URI for Spark. filesystem: the file system of pyarrow. root: the folder's path in it.
    """

    location: str
    filesystem: Any = field(compare=False, repr=False)
    root: str

    def __truediv__(self, name: str) -> ArrowStorage:
        return replace(self, location=f"{self.location}/{name}", root=self._path(name)) if name else self

    @property
    def parent(self) -> ArrowStorage | None:
        """The parent folder; None for the top folder of a file system or a bucket."""
        if "/" not in self.root.strip("/"):
            return None
        return replace(self, location=self.location.rpartition("/")[0], root=self.root.rpartition("/")[0])

    def write(self, name: str, data: bytes) -> None:
        """Creates or replaces a file; an object store shows the new bytes when the file is closed."""
        with self.open_output(name) as file:
            file.write(data)

    def list(self, pattern: str = "*") -> Sequence[Item]:
        """Lists the items that match a pattern; the listing is recursive for a pattern with slashes."""
        return sorted(item for item in self._listed("", "/" in pattern) if PurePosixPath(item.name).match(pattern))

    def files(self, folder: str = "") -> dict[str, int]:
        """Returns the sizes of all files below a folder, from a recursive listing."""
        return {item.name: item.size for item in self._listed(folder, True) if not item.is_dir}

    def _listed(self, folder: str, recursive: bool) -> Iterator[Item]:
        from pyarrow.fs import FileSelector, FileType

        with _translated("list", self / folder):
            root = self._path(folder)
            selector = FileSelector(root, allow_not_found=True, recursive=recursive)
            found = self.filesystem.get_file_info(selector)
        for info in found:
            modified_ms = (info.mtime_ns or 0) // 1_000_000
            name = info.path[len(root) + 1 :]
            yield Item(name, info.size or 0, modified_ms, info.type == FileType.Directory)

    def exists(self, name: str = "") -> bool:
        """True if the path exists; an error is raised."""
        from pyarrow.fs import FileType

        with _translated("read", self / name):
            return bool(self.filesystem.get_file_info(self._path(name)).type != FileType.NotFound)

    def size(self) -> int:
        """Returns the sum of the sizes of all files."""
        return sum(self.files().values())

    def delete(self, name: str) -> None:
        """Deletes a file, or a directory with its content, if it exists."""
        from pyarrow.fs import FileType

        with _translated("delete", self / name):
            kind = self.filesystem.get_file_info(self._path(name)).type
            if kind == FileType.Directory:
                self.filesystem.delete_dir(self._path(name))
            elif kind != FileType.NotFound:
                self.filesystem.delete_file(self._path(name))

    def make(self, name: str = "") -> None:
        """Creates a folder; on an object store, an empty object."""
        with _translated("create", self / name):
            self.filesystem.create_dir(self._path(name))

    def open_input(self, name: str) -> BinaryIO:
        """Opens a file; each read is of at most BUFFER_SIZE bytes."""
        reported = partial(_translated, "read", self / name)
        with reported():
            file = self.filesystem.open_input_file(self._path(name))
            size = file.size()
        return io.BufferedReader(InputStream(file.read_at, size, file.close, reported), BUFFER_SIZE)

    def open_output(self, name: str) -> BinaryIO:
        """Opens a file for writing in blocks of BUFFER_SIZE, which pyarrow joins to the parts of an upload."""
        reported = partial(_translated, "write", self / name)
        with reported():
            file = self.filesystem.open_output_stream(self._path(name))
        return io.BufferedWriter(OutputStream(file.write, file.close, reported), BUFFER_SIZE)

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to a local path."""
        with self.open_input(name) as source, to.open("wb") as file:
            copyfileobj(source, file, BUFFER_SIZE)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


@contextmanager
def _translated(action: str, place: object) -> Iterator[None]:
    """Translates the exceptions of pyarrow.

    Raises:
        FileNotFoundError: the file does not exist. NotFound: the bucket does not exist. Refused: access is denied.
        Unavailable: any other error.
    """
    try:
        yield
    except OSError as error:
        lines = str(error).splitlines() or [type(error).__name__]
        message = f"cannot {action} {place}: {lines[0]}"
        if _NO_BUCKET.search(message):
            raise NotFound(message) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(message) from error
        if isinstance(error, PermissionError) or any(word in message for word in _NO_ACCESS):
            raise Refused(message) from error
        raise Unavailable(message) from error


def collectors_storage(option: str, text: str) -> Storage:
    """Returns the storage of the folder that an option of a collector names; nothing is created.

    Args:
        option: the option's name, for the message. text: its value.

    Raises:
        UsageError: the scheme is not supported, pyarrow was built without it, or PySpark is missing for HDFS.
        Unavailable: the file system does not answer.
    """
    place = run_place(option, text, FACTS_SCHEMES)
    if isinstance(place, Path):
        return LocalStorage.of(place)
    location = place.rstrip("/")
    scheme = location.partition(":")[0].lower()
    if scheme in BY_JVM:
        if find_spec("pyspark") is None:
            raise UsageError(f"{option} {text}: {scheme} needs the Hadoop of pyspark, and a Java", hint=_INSTALL)
        return storage_at(location, *hadoop({}, environ=os.environ))
    return _by_arrow(option, location, SCHEMES[scheme])


def _by_arrow(option: str, location: str, scheme: str) -> ArrowStorage:
    from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem

    if scheme == "s3" and "@" in location:
        raise UsageError(f"{option}: a key in a URI is not supported", hint="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
    try:
        with _translated("open", location):
            filesystem, root = FileSystem.from_uri(scheme + location[location.index(":") :])
            if scheme == "s3":  # with pyarrow's own settings, a silent server is retried for 100 s
                filesystem = S3FileSystem(
                    region=filesystem.region,
                    endpoint_override=next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None),
                    connect_timeout=CONNECT_TIMEOUT_S,
                    request_timeout=REQUEST_TIMEOUT_S,
                    retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS_MAX),
                )
    except (ValueError, NotImplementedError, ImportError) as error:
        raise UsageError(f"{option} {location} is not supported: {error}") from error
    return ArrowStorage(location, filesystem, root.rstrip("/"))
