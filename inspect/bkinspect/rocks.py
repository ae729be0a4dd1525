"""Opens a bookie's RocksDB for reading without writing to its directory.

Every way to open a RocksDB writes files to its directory, so a temporary directory is opened instead: it has symbolic
links to the tables, which never change, and copies of the files that may change (manifest, write-ahead logs), the logs
first, so that they are never newer than the manifest. A running bookie is not disturbed; rows that it flushes during
the copy may or may not be included. If it removes a table meanwhile, the copy is unusable, and is created again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, unique
from pathlib import Path
from typing import Any, Final

from bkctl.errors import Corrupt, NotFound

ATTEMPTS_MAX: Final = 4
_CURRENT: Final = "CURRENT"
_LINKED: Final = (".sst", ".blob", ".ldb")
_MISSING: Final = "No such file"


def is_database(path: Path) -> bool:
    """True for a directory that holds a RocksDB."""
    return (path / _CURRENT).is_file()


@unique
class Log(Enum):
    """Records that a write-ahead log must have. WHOLE: every record, to the end of the file. TO_THE_TEAR: all except a
    last one that a crash truncated. AS_IT_IS: records after the first fault are ignored, as a bookie does."""

    WHOLE = "absolute_consistency"
    TO_THE_TEAR = "tolerate_corrupted_tail_records"
    AS_IT_IS = "point_in_time"


@contextmanager
def open_database(path: Path, log: Log = Log.AS_IT_IS) -> Iterator[Any]:
    """Opens the database at path, in its current state, as a read-only rocksdict.Rdict in raw mode.

    Raises:
        NotFound: the database does not exist. Corrupt: RocksDB cannot read it.
    """
    if not is_database(path):
        raise NotFound(f"there is no RocksDB in {path}")
    with tempfile.TemporaryDirectory(prefix="bkctl-index-") as scratch:
        database = _opened(path, Path(scratch), log)
        try:
            yield database
        finally:
            database.close()


def read_whole(path: Path, log: Log) -> None:
    """Reads every row of a database, and the records of its write-ahead log that `log` requires.

    Raises:
        NotFound: the database does not exist. Corrupt: a checksum does not match, or a file is missing or truncated.
    """
    with open_database(path, log) as database:
        try:
            for _ in database.items():
                pass
        except Exception as error:  # rocksdict knows no narrower class
            raise unreadable(path, error) from error


def _opened(path: Path, scratch: Path, log: Log) -> Any:
    from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_recovery_mode(getattr(DBRecoveryMode, log.value)())
    for attempt in range(1, ATTEMPTS_MAX + 1):
        copy = scratch / str(attempt)
        copy.mkdir()
        try:
            _stand_in(path, copy)
            return Rdict(str(copy), options, access_type=AccessType.read_only(False))
        except FileNotFoundError:
            if attempt == ATTEMPTS_MAX:
                raise
        except Exception as error:  # rocksdict knows no narrower class
            if _MISSING not in str(error) or attempt == ATTEMPTS_MAX:
                raise unreadable(path, error) from error
    raise AssertionError("the last attempt raises")


def unreadable(path: Path, error: Exception) -> Corrupt:
    """Returns an error of RocksDB as Corrupt."""
    return Corrupt("RocksDB", source=str(path), offset=0, expected="a readable database", found=str(error))


def _stand_in(path: Path, copy: Path) -> None:
    """Fills copy with links to the tables and copies of the other files of the database."""
    names = sorted((p.name for p in path.iterdir() if p.is_file()), key=_copy_order)
    for name in names:
        if name.endswith(_LINKED):
            (copy / name).symlink_to((path / name).resolve())
        elif name.endswith(".log") or name.startswith((_CURRENT, "MANIFEST-", "OPTIONS-", "IDENTITY")):
            shutil.copyfile(path / name, copy / name)


def _copy_order(name: str) -> tuple[int, str]:
    """Sort key: write-ahead logs before the manifest, CURRENT before the manifest it names, tables last."""
    if name.endswith(".log"):
        return 0, name
    if name == _CURRENT:
        return 1, name
    return (3, name) if name.endswith(_LINKED) else (2, name)


def database_state(path: Path) -> tuple[str, int] | None:
    """Returns identity and sequence number of a database, as a bookie notes them in bkctl.index; None if none exists.

    Raises:
        Corrupt: RocksDB cannot read it.
    """
    if not is_database(path):
        return None
    with open_database(path) as database:
        number = int(database.latest_sequence_number())
    identity = path / "IDENTITY"
    text = "".join(identity.read_text("ascii", "replace").split()) if identity.is_file() else ""
    return text or "-", number
