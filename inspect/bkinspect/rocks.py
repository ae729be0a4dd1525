"""Opens a bookie's RocksDB for reading without leaving a trace in its directory.

Every way to open a RocksDB writes files beside it, so a private directory stands in for it: tables, which never
change, are linked by symbolic links; what may change (manifest, write-ahead logs) is copied, the logs first, so that
the copy is never ahead of them. A bookie that runs on the directory is not disturbed; what it flushes during the copy
may or may not be seen. A table that it removed meanwhile makes the copy useless, and it is made again.
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
    """What is asked of a write-ahead log. WHOLE: every record, to the end of the file. TO_THE_TEAR: all but a last one
    that a crash cut short. AS_IT_IS: what comes behind the first fault is passed over, as a bookie does."""

    WHOLE = "absolute_consistency"
    TO_THE_TEAR = "tolerate_corrupted_tail_records"
    AS_IT_IS = "point_in_time"


@contextmanager
def open_database(path: Path, log: Log = Log.AS_IT_IS) -> Iterator[Any]:
    """A read-only rocksdict.Rdict in raw mode over the database at path, as it is now.

    Raises:
        NotFound: there is no database. Corrupt: RocksDB cannot read it.
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
    """Reads every row of a database, and of its write-ahead log what `log` asks for.

    Raises:
        NotFound: there is no database. Corrupt: a checksum does not fit, or a file is missing or cut short.
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
    """RocksDB's complaint as ours."""
    return Corrupt("RocksDB", source=str(path), offset=0, expected="a readable database", found=str(error))


def _stand_in(path: Path, copy: Path) -> None:
    """Fills copy with links to tables and copies of the rest."""
    names = sorted((p.name for p in path.iterdir() if p.is_file()), key=_copy_order)
    for name in names:
        if name.endswith(_LINKED):
            (copy / name).symlink_to((path / name).resolve())
        elif name.endswith(".log") or name.startswith((_CURRENT, "MANIFEST-", "OPTIONS-", "IDENTITY")):
            shutil.copyfile(path / name, copy / name)


def _copy_order(name: str) -> tuple[int, str]:
    """Write-ahead logs before the manifest, CURRENT before the manifest it names, tables last."""
    if name.endswith(".log"):
        return 0, name
    if name == _CURRENT:
        return 1, name
    return (3, name) if name.endswith(_LINKED) else (2, name)


def database_state(path: Path) -> tuple[str, int] | None:
    """The identity and the sequence number of a database, as a bookie notes them in bkctl.index; None without one.

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
