"""Accesses a folder of a run or of collectors, on a local disk or on any file system that Hadoop supports.

A storage is one folder. Names are relative to it, with slashes; `storage / name` is the folder `name` in it, and
`storage.url(name)` is its location for Spark. All methods raise FileNotFoundError if a file or folder does not exist,
and the errors of `_translated`.
"""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from bkctl.errors import NotFound, Refused, Unavailable, UsageError
from bkctl.world import PrivateDisk
from bkinspect.audit.session import hadoop_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_FILE: Final = "run.json"
"""The file of a run that names its tables; a folder without it is not a complete run."""
READ_SIZE_MAX: Final = 64 << 20
"""Bytes of a file that `read` returns at most, unless its caller sets another limit."""
BUFFER_SIZE: Final = 1 << 20
"""Bytes that one call to the JVM transfers at most."""
FIRST_ANSWER: Final = {
    "ipc.client.connect.max.retries": "3",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "10000",
    "ipc.client.rpc-timeout.ms": "20000",
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.max.millis": "1000",
    "fs.s3a.attempts.maximum": "0",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "15s",
    "fs.azure.io.retry.max.retries": "2",
    "fs.gs.http.max.retry": "2",
}
"""Hadoop settings of the first access to a file system: it must answer within about half a minute. Later accesses use
Hadoop's own settings, whose timeouts are minutes."""
_NEW: Final = ".new"
_ATOMIC_CREATE: Final = ("s3a", "s3", "s3n", "gs", "oss", "cosn", "obs")
"""Schemes of object stores: a file appears as a whole when it is closed, and a rename copies it."""
_JARS: Final = "add its jars: --spark-conf spark.jars.packages=GROUP:ARTIFACT:VERSION, or spark.jars=PATH"


Reported = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that translates the errors of a file system."""


class Item(NamedTuple):
    """A file or folder of a storage.

    name: relative to the storage; size: in bytes; modified_ms: since 1970, UTC.
    """

    name: str
    size: int
    modified_ms: int
    is_dir: bool


class Storage(ABC):
    """One folder of a file system."""

    location: str

    @abstractmethod
    def __truediv__(self, name: str) -> Storage:
        """Returns the folder of this name in this one; this one for an empty name."""

    def __str__(self) -> str:
        return self.location

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.location.rpartition("/")[2]

    def url(self, *names: str) -> str:
        """Returns the location with its scheme: Spark resolves a path without one in its default file system."""
        return "/".join((self.location.rstrip("/"), *names))

    @property
    @abstractmethod
    def parent(self) -> Storage | None:
        """The parent folder; None for the root."""

    def read(self, name: str, size_max: int = READ_SIZE_MAX) -> bytes:
        """Returns the bytes of a file.

        Raises:
            Refused: it has more than size_max bytes.
        """
        with self.open_input(name) as file:
            data = file.read(size_max + 1)
        if len(data) > size_max:
            raise Refused(f"{self / name} has more than {size_max} bytes")
        return data

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Creates or replaces a file atomically: a reader sees the old bytes or the new ones."""

    @abstractmethod
    def list(self, pattern: str = "*") -> Sequence[Item]:
        """Returns the files and folders that match a pattern (`*`, with slashes between names), sorted by name."""

    @abstractmethod
    def files(self, folder: str = "") -> dict[str, int]:
        """Returns the sizes of all files below a folder, by their names relative to it; empty if it does not exist."""

    @abstractmethod
    def exists(self, name: str = "") -> bool:
        """True if the file or folder exists; may be False if this user may not access its folder."""

    @abstractmethod
    def size(self) -> int:
        """Returns the bytes of all files in this folder and below."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with its content, if it exists."""

    @abstractmethod
    def make(self, name: str = "") -> None:
        """Creates a folder, which may exist, and its parents, with access for their owner only."""

    @abstractmethod
    def open_input(self, name: str) -> BinaryIO:
        """Opens a file for reading, seekable."""

    @abstractmethod
    def open_output(self, name: str) -> BinaryIO:
        """Creates or truncates a file and opens it for writing."""

    @abstractmethod
    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to a local path."""


@dataclass(frozen=True)
class LocalStorage(Storage):
    """A local folder.

    location: an absolute path.
    """

    location: str

    @classmethod
    def of(cls, path: Path) -> LocalStorage:
        """Returns the storage of a path; a relative path is resolved in the working directory."""
        return cls(str(path.absolute()))

    def __truediv__(self, name: str) -> LocalStorage:
        return LocalStorage(str(self.path / name))

    @property
    def path(self) -> Path:
        """The folder's path."""
        return Path(self.location)

    def url(self, *names: str) -> str:
        """Returns a file URI."""
        return f"file://{self.path.joinpath(*names)}"

    @property
    def parent(self) -> Storage | None:
        """The parent folder; None for the root."""
        parent = self.path.parent
        return None if parent == self.path else LocalStorage(str(parent))

    def write(self, name: str, data: bytes) -> None:
        """Writes a temporary file, syncs it and renames it."""
        PrivateDisk().replace(self.path / name, data)

    def list(self, pattern: str = "*") -> Sequence[Item]:
        """Lists the items that match a pattern of pathlib's glob."""
        found = []
        for path in sorted(self.path.glob(pattern)):
            try:
                stat = path.stat()
            except FileNotFoundError:  # a link to nothing, or deleted by another run
                continue
            name = path.relative_to(self.path).as_posix()
            found.append(Item(name, stat.st_size, stat.st_mtime_ns // 1_000_000, path.is_dir()))
        return found

    def files(self, folder: str = "") -> dict[str, int]:
        """Returns the sizes of all files below a folder; a file that is deleted meanwhile may be left out."""
        root, found = self.path / folder, dict[str, int]()
        for path in root.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file():
                    found[path.relative_to(root).as_posix()] = path.stat().st_size
        return found

    def exists(self, name: str = "") -> bool:
        """True if the path exists; False also if this user may not search its folder."""
        return os.path.exists(self.path / name)

    def size(self) -> int:
        """Returns the sum of the sizes of all files."""
        return sum(self.files().values())

    def delete(self, name: str) -> None:
        """Deletes a file or folder; ignores errors in a folder."""
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def make(self, name: str = "") -> None:
        """Creates a folder with mode 0700."""
        (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_input(self, name: str) -> BinaryIO:
        """Opens a file."""
        return (self.path / name).open("rb")

    def open_output(self, name: str) -> BinaryIO:
        """Creates or truncates a file, with mode 0600 if it is new."""
        return os.fdopen(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to a local path."""
        shutil.copyfile(self.path / name, to)


class InputStream(io.RawIOBase):
    """A file of a remote file system, opened for reading.

    Args:
        read_at: takes a count and an offset, returns at most count bytes. size: of the file. close: closes the file.
        reported: returns a context manager that translates the errors of read_at and close.
    """

    def __init__(
        self, read_at: Callable[[int, int], bytes], size: int, close: Callable[[], object], reported: Reported
    ) -> None:
        self._read_at, self._size, self._close, self._reported, self._offset = read_at, size, close, reported, 0

    def readable(self) -> bool:
        """Returns True: the file is open for reading."""
        return True

    def seekable(self) -> bool:
        """Returns True: the file supports seek."""
        return True

    def tell(self) -> int:
        """Returns the offset of the next byte to read."""
        return self._offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the offset of the next byte to read; accesses nothing."""
        self._offset = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._size}[whence]
        return self._offset

    def readinto(self, buffer: Any) -> int:
        """Reads at most BUFFER_SIZE bytes."""
        count = max(min(len(buffer), BUFFER_SIZE, self._size - self._offset), 0)
        if not count:
            return 0
        with self._reported():
            data = self._read_at(count, self._offset)
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        """Closes once."""
        if not self.closed:
            super().close()
            with self._reported():
                self._close()


class OutputStream(io.RawIOBase):
    """A file of a remote file system, opened for writing.

    Args:
        write: writes bytes. close: closes the file. reported: as for InputStream.
    """

    def __init__(self, write: Callable[[bytes], object], close: Callable[[], object], reported: Reported) -> None:
        self._write, self._close, self._reported, self._offset = write, close, reported, 0

    def writable(self) -> bool:
        """Returns True: the file is open for writing."""
        return True

    def tell(self) -> int:
        """Returns the number of bytes written."""
        return self._offset

    def write(self, data: Any) -> int:
        """Writes all bytes of a buffer."""
        with self._reported():
            self._write(bytes(data))
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        """Closes once."""
        if not self.closed:
            super().close()
            with self._reported():
                self._close()


@dataclass(frozen=True)
class HadoopStorage(Storage):
    """A folder of a file system that Hadoop supports, accessed through a JVM.

    Args:
        location: a URI. jvm: py4j's view of the JVM. hadoop: its org.apache.hadoop.conf.Configuration.
    """

    location: str
    jvm: Any = field(compare=False, repr=False)
    hadoop: Any = field(compare=False, repr=False)

    def __truediv__(self, name: str) -> HadoopStorage:
        return self.at(f"{self.location.rstrip('/')}/{name}") if name else self

    @property
    def parent(self) -> Storage | None:
        """The parent folder; None for the root."""
        parent = self._path().getParent()
        return None if parent is None else self.at(parent.toString())

    def write(self, name: str, data: bytes) -> None:
        """Writes a temporary file and renames it; on an object store, writes the file, which appears when closed."""
        scheme = self.location.partition(":")[0].lower()
        if scheme in _ATOMIC_CREATE:
            self._create(name, data)
            return
        self._create(name + _NEW, data)
        with _translated("write", self / name):
            rename = self.jvm.org.apache.hadoop.fs.Options.Rename
            options = self.jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
            options[0] = rename.OVERWRITE
            context = self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._path().toUri(), self.hadoop)
            context.rename(self._path(name + _NEW), self._path(name), options)

    def _create(self, name: str, data: bytes) -> None:
        with self.open_output(name) as file:
            file.write(data)

    def list(self, pattern: str = "*") -> Sequence[Item]:
        """Lists the items that match a pattern of Hadoop's glob."""
        with _translated("list", self):
            base = self._files().makeQualified(self._path()).toString().rstrip("/") + "/"
            found = []
            for status in self._files().globStatus(self._path(pattern)) or ():
                name = status.getPath().toString().removeprefix(base)
                found.append(Item(name, status.getLen(), status.getModificationTime(), status.isDirectory()))
        return sorted(found)

    def files(self, folder: str = "") -> dict[str, int]:
        """Returns the sizes of all files below a folder, from a recursive listing: on an object store, one of keys."""
        found = dict[str, int]()
        with suppress(FileNotFoundError), _translated("list", self / folder):
            path = self._path(folder)
            base = self._files().makeQualified(path).toString().rstrip("/") + "/"
            statuses = self._files().listFiles(path, True)
            while statuses.hasNext():
                status = statuses.next()
                found[status.getPath().toString().removeprefix(base)] = status.getLen()
        return found

    def exists(self, name: str = "") -> bool:
        """True if the path exists; an error is raised."""
        with _translated("read", self / name):
            return bool(self._files().exists(self._path(name)))

    def size(self) -> int:
        """Returns the bytes of all files, from the file system's summary."""
        with _translated("list", self):
            return int(self._files().getContentSummary(self._path()).getLength())

    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with its content, if it exists."""
        with _translated("delete", self / name):
            self._files().delete(self._path(name), True)

    def make(self, name: str = "") -> None:
        """Creates a folder, with mode 0700 if the file system supports modes."""
        with _translated("create", self / name):
            mode = self.jvm.org.apache.hadoop.fs.permission.FsPermission("700")
            self._files().mkdirs(self._path(name), mode)

    def open_input(self, name: str) -> BinaryIO:
        """Opens a file; each read is one call to the JVM, for at most BUFFER_SIZE bytes."""
        reported = partial(_translated, "read", self / name)
        with reported():
            size = self._files().getFileStatus(self._path(name)).getLen()
            stream = self._files().open(self._path(name))

        def read_at(count: int, offset: int) -> bytes:
            stream.seek(offset)
            return bytes(stream.readNBytes(count))

        return io.BufferedReader(InputStream(read_at, size, stream.close, reported), BUFFER_SIZE)

    def open_output(self, name: str) -> BinaryIO:
        """Opens a file for writing, with one call to the JVM per BUFFER_SIZE bytes."""
        reported = partial(_translated, "write", self / name)
        with reported():
            stream = self._files().create(self._path(name), True)
        return io.BufferedWriter(OutputStream(stream.write, stream.close, reported), BUFFER_SIZE)

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to a local path; the JVM writes the local file."""
        with _translated("read", self / name):
            local = self.jvm.org.apache.hadoop.fs.Path(f"file://{to.absolute()}")
            self._files().copyToLocalFile(False, self._path(name), local, True)

    def _path(self, name: str = "") -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.location.rstrip('/')}/{name}")

    def _files(self) -> Any:
        return self._path().getFileSystem(self.hadoop)

    def at(self, location: str) -> HadoopStorage:
        """Returns another folder of the same Hadoop, by its URI."""
        return replace(self, location=location)


@contextmanager
def _translated(action: str, place: Storage) -> Iterator[None]:
    """Translates Java's exceptions.

    Raises:
        FileNotFoundError: the file does not exist. NotFound: the bucket does not exist. UsageError: the location is not
            valid, or Hadoop does not support its file system. Refused: access is denied. Unavailable: any other error.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        kind = cause.getClass().getSimpleName()
        lines = str(cause.getMessage() or kind).splitlines()
        message = f"cannot {action} {place}: {lines[0]}"
        if kind == "FileNotFoundException":
            raise FileNotFoundError(message) from None
        if kind == "UnknownStoreException":
            raise NotFound(message) from None
        if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in str(cause.toString()):
            raise UsageError(message, hint=_JARS) from None
        if kind in ("AccessControlException", "AccessDeniedException"):
            raise Refused(message) from None
        if kind in ("IllegalArgumentException", "URISyntaxException"):
            raise UsageError(message) from None
        raise Unavailable(message, trace=str(error)) from None
    except Py4JError as error:
        raise Unavailable(f"cannot {action} {place}: no answer in time, or the JVM ended", trace=str(error)) from None


def storage_of(spark: SparkSession, place: Path | str) -> Storage:
    """Returns the storage of a local path, or of a URI by the session's Hadoop.

    Raises:
        As storage_at, for a URI.
    """
    if isinstance(place, Path):
        return LocalStorage.of(place)
    return storage_at(place, *hadoop_of(spark))


def storage_at(place: str, jvm: Any, hadoop: Any) -> Storage:
    """Returns the storage of a URI, after its file system has answered.

    Args:
        place: the URI. jvm: py4j's view of a JVM. hadoop: the JVM's org.apache.hadoop.conf.Configuration.

    Raises:
        UsageError: Hadoop does not support the file system. NotFound: the bucket does not exist. Refused: access is
            denied. Unavailable: the file system does not answer with the settings FIRST_ANSWER.
    """
    storage = HadoopStorage(place, jvm, hadoop)
    with _translated("read", storage):
        path = jvm.org.apache.hadoop.fs.Path(place)
        impatient = jvm.org.apache.hadoop.conf.Configuration(hadoop)
        for name, value in FIRST_ANSWER.items():
            impatient.set(name, value)
        files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), impatient)
        try:
            files.exists(path)
            return storage.at(files.makeQualified(path).toString())
        finally:
            files.close()
