"""The folder to which a collector writes: on a local disk, an object store by pyarrow, or HDFS by a JVM of its own.

A collector runs without Spark: pyarrow has clients of object stores. Of HDFS it has none, only a bridge to Hadoop's
native library, which its wheels do not contain; so HDFS takes the JVM and the jars of PySpark, as a run does.
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
"""Hadoop's schemes → pyarrow's."""
BY_JVM: Final = ("hdfs", "viewfs")
_NO_ACCESS: Final = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "HTTP Status 403")
_NO_BUCKET: Final = re.compile("NO_SUCH_BUCKET|Bucket '.*' not found")
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables that name another server of S3."""
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
"""Of S3, for the next bytes of an answer."""
ATTEMPTS_MAX: Final = 3
"""How often S3 is asked."""
_INSTALL: Final = "pip install 'bkctl[spark]'"


@dataclass(frozen=True)
class ArrowStorage(Storage):
    """A folder of a file system of pyarrow.

    Args:
        location: as Spark takes it. filesystem: pyarrow's. root: the folder's path there.
    """

    location: str
    filesystem: Any = field(compare=False, repr=False)
    root: str

    def __truediv__(self, name: str) -> ArrowStorage:
        return replace(self, location=f"{self.location}/{name}", root=self._path(name)) if name else self

    @property
    def parent(self) -> ArrowStorage | None:
        """The folder that this one is in."""
        if "/" not in self.root.strip("/"):
            return None
        return replace(self, location=self.location.rpartition("/")[0], root=self.root.rpartition("/")[0])

    def write(self, name: str, data: bytes) -> None:
        """An object store shows a file when it is closed."""
        with self.open_output(name) as file:
            file.write(data)

    def list(self, pattern: str = "*") -> Sequence[Item]:
        """By a listing, recursive for a pattern of more than one name."""
        return sorted(item for item in self._listed("", "/" in pattern) if PurePosixPath(item.name).match(pattern))

    def files(self, folder: str = "") -> dict[str, int]:
        """By a recursive listing."""
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
        """By the information about a path."""
        from pyarrow.fs import FileType

        with _translated("read", self / name):
            return bool(self.filesystem.get_file_info(self._path(name)).type != FileType.NotFound)

    def size(self) -> int:
        """The sum over all files."""
        return sum(self.files().values())

    def delete(self, name: str) -> None:
        """As the kind of the path is."""
        from pyarrow.fs import FileType

        with _translated("delete", self / name):
            kind = self.filesystem.get_file_info(self._path(name)).type
            if kind == FileType.Directory:
                self.filesystem.delete_dir(self._path(name))
            elif kind != FileType.NotFound:
                self.filesystem.delete_file(self._path(name))

    def make(self, name: str = "") -> None:
        """On an object store, an empty object."""
        with _translated("create", self / name):
            self.filesystem.create_dir(self._path(name))

    def open_input(self, name: str) -> BinaryIO:
        """Reads of at most BUFFER_SIZE."""
        reported = partial(_translated, "read", self / name)
        with reported():
            file = self.filesystem.open_input_file(self._path(name))
            size = file.size()
        return io.BufferedReader(InputStream(file.read_at, size, file.close, reported), BUFFER_SIZE)

    def open_output(self, name: str) -> BinaryIO:
        """Writes of BUFFER_SIZE, which pyarrow collects into parts of an upload."""
        reported = partial(_translated, "write", self / name)
        with reported():
            file = self.filesystem.open_output_stream(self._path(name))
        return io.BufferedWriter(OutputStream(file.write, file.close, reported), BUFFER_SIZE)

    def fetch(self, name: str, to: Path) -> None:
        """By copying."""
        with self.open_input(name) as source, to.open("wb") as file:
            copyfileobj(source, file, BUFFER_SIZE)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


@contextmanager
def _translated(action: str, place: object) -> Iterator[None]:
    """Translates what pyarrow raises.

    Raises:
        FileNotFoundError: there is no such file. NotFound: there is no such bucket. Refused: the user may not do that.
        Unavailable: anything else.
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
    """The folder of a collector's argument; nothing is created.

    Args:
        option: the argument's name, for the message.

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
            if scheme == "s3":  # a server that is silent would be asked for 100 s
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
