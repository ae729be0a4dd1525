"""A folder on any file system of pyarrow: where collectors write, and where a run reads their manifests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bkctl.errors import NotFound, Refused, Unavailable, UsageError
from bkctl.world import PrivateDisk
from bkinspect.audit.locations import local_path
from bkinspect.audit.storage import READ_SIZE_MAX

SCHEMES: Final[Mapping[str, str]] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""Hadoop's schemes → pyarrow's."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_HINT: Final = "a path, file:///PATH, or one of " + ", ".join(f"{scheme}:" for scheme in SCHEMES)


@dataclass(frozen=True, slots=True)
class Destination:
    """A folder. Names are relative to it, with slashes.

    uri: as Spark takes it. filesystem: pyarrow's. root: its path there. local: True on this machine's file system.
    """

    uri: str
    filesystem: Any
    root: str
    local: bool

    def path(self, name: str) -> str:
        """The path of a name on the file system."""
        return f"{self.root}/{name}"

    def uri_of(self, name: str) -> str:
        """The URI of a name, for Spark."""
        return f"{self.uri}/{name}"

    def files(self, folder: str) -> dict[str, int]:
        """The sizes of all files below a folder, by name; none where the folder does not exist."""
        from pyarrow.fs import FileSelector, FileType

        with self.reported(folder):
            found = self.filesystem.get_file_info(FileSelector(self.path(folder), allow_not_found=True, recursive=True))
            start = len(self.root) + 1
            return {info.path[start:]: info.size for info in found if info.type == FileType.File}

    def folders(self) -> list[str]:
        """The names of the folders in this one.

        Raises:
            NotFound: it does not exist.
        """
        from pyarrow.fs import FileSelector, FileType

        with self.reported(""):
            try:
                found = self.filesystem.get_file_info(FileSelector(self.root))
            except FileNotFoundError:
                raise NotFound(f"there is no folder {self.uri}") from None
        return sorted(info.base_name for info in found if info.type == FileType.Directory)

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file.

        Raises:
            Refused: it has more than READ_SIZE_MAX bytes.
        """
        with self.reported(name), self.filesystem.open_input_stream(self.path(name)) as stream:
            data: bytes = stream.read(READ_SIZE_MAX + 1)
        if len(data) > READ_SIZE_MAX:
            raise Refused(f"{self.uri_of(name)} has more than {READ_SIZE_MAX} bytes")
        return data

    def make(self, folder: str) -> None:
        """Creates a folder and those above it; on this machine only their owner may enter them."""
        if self.local:  # pyarrow's own call ignores the umask
            os.makedirs(self.path(folder), mode=0o700, exist_ok=True)
            return
        with self.reported(folder):
            self.filesystem.create_dir(self.path(folder))

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file; on this machine durably and at once, elsewhere as atomically as the file system does it."""
        if self.local:
            PrivateDisk().replace(Path(self.path(name)), data)
            return
        with self.reported(name), self.filesystem.open_output_stream(self.path(name)) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        """Removes a file."""
        with self.reported(name):
            self.filesystem.delete_file(self.path(name))

    @contextmanager
    def reported(self, name: str) -> Iterator[None]:
        """Raises what a file system reports as Unavailable."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"there is no {self.uri_of(name)}: {error}") from error
        except OSError as error:
            raise Unavailable(f"failed to access {self.uri_of(name)}: {error}") from error


def destination_of(option: str, text: str) -> Destination:
    """The folder of an argument; nothing is created.

    Args:
        option: the argument's name, for the message.

    Raises:
        UsageError: the scheme is not supported, or pyarrow was built without it. Unavailable: it does not answer.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    match = _SCHEME.match(text)
    scheme = None if match is None else match[1].lower()
    if scheme in (None, "file"):
        path = str(local_path(option, text).absolute())
        return Destination(path, LocalFileSystem(), path, True)
    if scheme not in SCHEMES or match is None:
        raise UsageError(f"{option} {text}: scheme {scheme} is not supported", hint=_HINT)
    uri = text.rstrip("/")
    try:
        filesystem, root = FileSystem.from_uri(SCHEMES[scheme] + uri[match.end(1) :])
    except OSError as error:
        raise Unavailable(f"failed to open {option} {text}: {error}") from error
    except (ValueError, NotImplementedError, ImportError) as error:
        raise UsageError(f"{option} {text} is not supported: {error}", hint=_HINT) from error
    return Destination(uri, filesystem, root.rstrip("/"), False)
