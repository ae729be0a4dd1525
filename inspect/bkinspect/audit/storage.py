"""The folder of a run, on a local disk or on any file system that Hadoop supports.

A storage is one folder. Names are relative to it, with slashes; `storage / name` is the folder `name` in it, and
`storage.url(name)` is the location that Spark is given. All methods raise FileNotFoundError where a file or folder
does not exist, and the errors of `_translated`.
"""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from bkctl.errors import Refused, Unavailable, UsageError
from bkinspect.audit.session import hadoop_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_FILE: Final = "run.json"
"""The file of a run that names its tables; a folder without it is not a complete run."""
READ_SIZE_MAX: Final = 64 << 20
"""Bytes of a file that `read` returns."""
BUFFER_SIZE: Final = 1 << 20
"""Bytes that one call to the JVM carries."""
_NEW: Final = ".new"
_ATOMIC_CREATE: Final = ("s3a", "s3", "s3n", "gs", "oss", "cosn", "obs")
"""Schemes of object stores: a file appears whole when it is closed, and a rename copies it."""
_JARS: Final = "add its jars: --spark-conf spark.jars.packages=GROUP:ARTIFACT:VERSION, or spark.jars=PATH"


class Item(NamedTuple):
    """A file or folder. name: relative to the storage; size: in bytes; modified_ms: since 1970."""

    name: str
    size: int
    modified_ms: int
    is_dir: bool


class Storage(ABC):
    """One folder of a file system."""

    location: str

    def __truediv__(self, name: str) -> Storage:
        return self.at(f"{self.location.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.location

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.location.rpartition("/")[2]

    def url(self, *names: str) -> str:
        """The location that Spark is given, with its scheme: Spark takes a path without one for the default's."""
        return "/".join((self.location.rstrip("/"), *names))

    @property
    @abstractmethod
    def parent(self) -> Storage | None:
        """The folder that this one is in; None for the root."""

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
        """Creates or replaces a file; a reader sees the old bytes or the new ones."""

    @abstractmethod
    def list(self, pattern: str = "*") -> Sequence[Item]:
        """The files and folders that match a pattern (`*`, with slashes between names), by name."""

    @abstractmethod
    def exists(self, name: str = "") -> bool:
        """True if there is such a file or folder; False also where this user may not list it."""

    @abstractmethod
    def size(self) -> int:
        """Bytes of all files in this folder and below."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with all files in it, if it exists."""

    @abstractmethod
    def make(self, name: str = "") -> None:
        """Creates a folder with its parents, for its owner only; it may exist."""

    @abstractmethod
    def open_input(self, name: str) -> BinaryIO:
        """Opens a file for reading, seekable."""

    @abstractmethod
    def open_output(self, name: str) -> BinaryIO:
        """Creates or truncates a file and opens it for writing."""

    @abstractmethod
    def fetch(self, name: str, to: Path) -> None:
        """Copies a file to a local path."""

    @abstractmethod
    def at(self, location: str) -> Storage:
        """Another folder of the same file system, by its location."""


@dataclass(frozen=True)
class LocalStorage(Storage):
    """A folder of this machine. location: an absolute path."""

    location: str

    @classmethod
    def of(cls, path: Path) -> LocalStorage:
        """The storage of a path, relative ones in the working directory."""
        return cls(str(path.absolute()))

    @property
    def path(self) -> Path:
        """The folder's path."""
        return Path(self.location)

    def url(self, *names: str) -> str:
        """A file URI."""
        return f"file://{self.path.joinpath(*names)}"

    @property
    def parent(self) -> Storage | None:
        """The folder that this one is in."""
        parent = self.path.parent
        return None if parent == self.path else LocalStorage(str(parent))

    def write(self, name: str, data: bytes) -> None:
        """Writes a file beside and renames it."""
        with self.open_output(name + _NEW) as file:
            file.write(data)
        os.replace(self.path / (name + _NEW), self.path / name)

    def list(self, pattern: str = "*") -> Sequence[Item]:
        """By pathlib's glob."""
        found = []
        for path in sorted(self.path.glob(pattern)):
            try:
                stat = path.stat()
            except FileNotFoundError:  # a link to nothing, or deleted by another run
                continue
            name = path.relative_to(self.path).as_posix()
            found.append(Item(name, stat.st_size, stat.st_mtime_ns // 1_000_000, path.is_dir()))
        return found

    def exists(self, name: str = "") -> bool:
        """By os.path.exists, which is False where this user may not list."""
        return os.path.exists(self.path / name)

    def size(self) -> int:
        """The sum over all files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def delete(self, name: str) -> None:
        """Deletes what can be deleted."""
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def make(self, name: str = "") -> None:
        """Mode 0700."""
        (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_input(self, name: str) -> BinaryIO:
        """By open."""
        return (self.path / name).open("rb")

    def open_output(self, name: str) -> BinaryIO:
        """Mode 0600."""
        return os.fdopen(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")

    def fetch(self, name: str, to: Path) -> None:
        """By copying."""
        shutil.copyfile(self.path / name, to)

    def at(self, location: str) -> Storage:
        """By its absolute path."""
        return LocalStorage(location)


@dataclass(frozen=True)
class HadoopStorage(Storage):
    """A folder of a file system that a JVM's Hadoop knows. location: a URI.

    Args:
        jvm: py4j's view of the JVM; hadoop: its org.apache.hadoop.conf.Configuration.
    """

    location: str
    jvm: Any = field(compare=False, repr=False)
    hadoop: Any = field(compare=False, repr=False)

    @property
    def parent(self) -> Storage | None:
        """The folder that this one is in."""
        parent = self._path().getParent()
        return None if parent is None else self.at(parent.toString())

    def write(self, name: str, data: bytes) -> None:
        """Renames where a rename is atomic; an object store shows a file when it is closed."""
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
        """By Hadoop's glob."""
        with _translated("list", self):
            base = self._files().makeQualified(self._path()).toString().rstrip("/") + "/"
            found = []
            for status in self._files().globStatus(self._path(pattern)) or ():
                name = status.getPath().toString().removeprefix(base)
                found.append(Item(name, status.getLen(), status.getModificationTime(), status.isDirectory()))
        return sorted(found)

    def exists(self, name: str = "") -> bool:
        """By the file system's exists; an error is raised."""
        with _translated("read", self / name):
            return bool(self._files().exists(self._path(name)))

    def size(self) -> int:
        """By the file system's summary."""
        with _translated("list", self):
            return int(self._files().getContentSummary(self._path()).getLength())

    def delete(self, name: str) -> None:
        """Recursive."""
        with _translated("delete", self / name):
            self._files().delete(self._path(name), True)

    def make(self, name: str = "") -> None:
        """Mode 0700 where the file system has modes."""
        with _translated("create", self / name):
            mode = self.jvm.org.apache.hadoop.fs.permission.FsPermission("700")
            self._files().mkdirs(self._path(name), mode)

    def open_input(self, name: str) -> BinaryIO:
        """Each read is a call to the JVM, of at most BUFFER_SIZE."""
        with _translated("read", self / name):
            size = self._files().getFileStatus(self._path(name)).getLen()
            stream = self._files().open(self._path(name))
        return io.BufferedReader(_Input(stream, size, self / name), BUFFER_SIZE)

    def open_output(self, name: str) -> BinaryIO:
        """Each BUFFER_SIZE is a call to the JVM."""
        with _translated("write", self / name):
            stream = self._files().create(self._path(name), True)
        return io.BufferedWriter(_Output(stream, self / name), BUFFER_SIZE)

    def fetch(self, name: str, to: Path) -> None:
        """The JVM writes the local file."""
        with _translated("read", self / name):
            local = self.jvm.org.apache.hadoop.fs.Path(f"file://{to.absolute()}")
            self._files().copyToLocalFile(False, self._path(name), local, True)

    def _path(self, name: str = "") -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.location.rstrip('/')}/{name}")

    def _files(self) -> Any:
        return self._path().getFileSystem(self.hadoop)

    def at(self, location: str) -> Storage:
        """By its URI."""
        return HadoopStorage(location, self.jvm, self.hadoop)


class _Input(io.RawIOBase):
    """A Hadoop input stream."""

    def __init__(self, stream: Any, size: int, place: Storage) -> None:
        self._stream, self._size, self._place, self._offset = stream, size, place, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._offset = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._size}[whence]
        return self._offset

    def readinto(self, buffer: Any) -> int:
        count = max(min(len(buffer), BUFFER_SIZE, self._size - self._offset), 0)
        if not count:
            return 0
        with _translated("read", self._place):
            self._stream.seek(self._offset)
            data = self._stream.readNBytes(count)
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _translated("read", self._place):
                self._stream.close()


class _Output(io.RawIOBase):
    """A Hadoop output stream."""

    def __init__(self, stream: Any, place: Storage) -> None:
        self._stream, self._place = stream, place

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _translated("write", self._place):
            self._stream.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _translated("write", self._place):
                self._stream.close()


@contextmanager
def _translated(action: str, place: Storage) -> Iterator[None]:
    """Translates Java's exceptions.

    Raises:
        FileNotFoundError: there is no such file. UsageError: there is no such file system. Refused: the user may not
            do that. Unavailable: anything else.
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
        if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in str(cause.toString()):
            raise UsageError(message, hint=_JARS) from None
        if kind in ("AccessControlException", "AccessDeniedException"):
            raise Refused(message) from None
        if kind in ("IllegalArgumentException", "URISyntaxException"):
            raise UsageError(message) from None
        raise Unavailable(message, trace=str(error)) from None
    except Py4JError as error:
        raise Unavailable(f"cannot {action} {place}: {error}") from None


def storage_of(spark: SparkSession, place: Path | str) -> Storage:
    """The storage of a local path, or of a URI by the session's Hadoop.

    Raises:
        UsageError: Hadoop has no such file system.
    """
    if isinstance(place, Path):
        return LocalStorage.of(place)
    return storage_at(place, *hadoop_of(spark))


def storage_at(place: str, jvm: Any, hadoop: Any) -> Storage:
    """The storage of a URI. hadoop: the JVM's org.apache.hadoop.conf.Configuration.

    Raises:
        UsageError: Hadoop has no such file system.
    """
    storage = HadoopStorage(place, jvm, hadoop)
    with _translated("read", storage):
        path = jvm.org.apache.hadoop.fs.Path(place)
        return HadoopStorage(path.getFileSystem(hadoop).makeQualified(path).toString(), jvm, hadoop)
