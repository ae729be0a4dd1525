"""The identity of a bookie in its directories: lock, cookie, DIRTY and BOOKIE_STATUS.

    lock      `bkctl.lock` beside `current`, in every directory: held while a bookie runs, the file stays. It is not in
              `current`, which must be empty for a first start, and has no name that a Java bookie reads
    cookie    current/VERSION in every directory, and the same in the metadata store

    in the store   in the directories          result
    yes            all, all equal              start
    yes            missing in some             refused
    no             missing in some             a new bookie: those must be empty; the cookie is written to them, then to
                                               the store
    no             all                         refused: the bookie is unknown in the cluster; except if the directories
                                               contain nothing but the cookie, after an interrupted first start

allowStorageExpansion is not supported: a ledger is in directory `ledger id mod number of directories`, so with one more
directory most ledgers would be searched in the wrong one. (Java's DbLedgerStorage does that.)
Source: Cookie.java, LegacyCookieValidation.java, UncleanShutdownDetectionImpl.java, BookieStatus.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.codec.data_dir import (
    COOKIE_NAME,
    CURRENT,
    DIRTY_NAME,
    STATUS_NAME,
    BookieStatusFile,
    decode_cookie,
    decode_status,
    encode_cookie,
    encode_status,
)
from bkctl.errors import BadBytes, NotFound, Refused
from bkctl.model.bookie import Cookie

if TYPE_CHECKING:
    from bkctl.meta.bookies import BookieRegistry
    from bkctl.model.ids import BookieId
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig

logger = logging.getLogger(__name__)

LOCK_NAME: Final = "bkctl.lock"
OLD_SUFFIXES: Final = (".txn", ".log", ".idx")  # files of old bookies, which had no `current`


def directories(config: BookieConfig) -> list[str]:
    """Returns every configured directory once, in the order of the cookie."""
    return list(dict.fromkeys((*config.journal_dirs, *config.ledger_dirs, *config.index_dirs)))


def make_directories(disk: Disk, config: BookieConfig) -> None:
    """Creates the `current` directories.

    Raises:
        Refused: a directory has files of a bookie from before version 3.
    """
    for directory in map(Path, directories(config)):
        if not disk.exists(directory / CURRENT) and disk.exists(directory):
            old = [name for name in disk.names(directory) if name.endswith(OLD_SUFFIXES) or name == COOKIE_NAME]
            if old:
                raise Refused(f"{directory} has {old[0]} of a bookie from before version 3, which is not supported")
        disk.make_dirs(directory / CURRENT)


def lock_directories(disk: Disk, config: BookieConfig) -> Callable[[], None]:
    """Locks every directory for this process; returns a function that releases them.

    Raises:
        Refused: another bookie runs on one of them.
    """
    releases: list[Callable[[], None]] = []

    def release() -> None:
        while releases:
            releases.pop()()

    for directory in directories(config):
        taken = disk.lock(Path(directory) / LOCK_NAME)
        if taken is None:
            release()
            raise Refused(
                f"another bookie runs on {directory}", hint="each bookie needs its own directories", directory=directory
            )
        releases.append(taken)
    return release


def expected_cookie(config: BookieConfig, bookie_id: BookieId, instance_id: str | None) -> Cookie:
    """Returns the cookie of a bookie with this configuration in this cluster."""
    return Cookie(bookie_id, config.journal_dirs, config.ledger_dirs, config.index_directories or None, instance_id)


async def check_cookies(
    disk: Disk, config: BookieConfig, bookie_id: BookieId, registry: BookieRegistry, instance_id: str | None
) -> None:
    """Checks that directories, bookie id and cluster belong together; writes the cookies of a new bookie.

    Raises:
        Refused: they do not belong together.
        BadBytes: a cookie is not valid.
    """
    expected = expected_cookie(config, bookie_id, instance_id)
    found: dict[str, Cookie] = {}
    for directory in directories(config):
        path = Path(directory) / CURRENT / COOKIE_NAME
        if disk.exists(path):
            found[directory] = decode_cookie(disk.read(path), source=str(path))
            _compare(found[directory], expected, config, where=str(path))
    missing = [directory for directory in directories(config) if directory not in found]
    try:
        stored, _ = await registry.cookie(bookie_id)
    except NotFound:
        if not missing and any(_contents(disk, d) != [COOKIE_NAME] for d in found):
            raise Refused(
                f"every directory has a cookie, but the cluster has none of {bookie_id}",
                hint="was the bookie decommissioned, or is this another cluster?",
            ) from None
        _check_empty(disk, missing)
        _write_cookies(disk, missing, expected)
        await registry.create_cookie(expected)
        return
    _compare(stored, expected, config, where=f"the cluster's cookie of {bookie_id}")
    if missing:
        raise Refused(
            f"{missing[0]} has no cookie, but the cluster has one of {bookie_id}: data is missing",
            hint="is the disk mounted?",
            directory=missing[0],
        )


def _compare(cookie: Cookie, expected: Cookie, config: BookieConfig, *, where: str) -> None:
    """Raises Refused for a cookie of another bookie."""
    pairs: tuple[tuple[str, object, object], ...] = (
        ("bookie id", cookie.bookie_id, expected.bookie_id),
        ("instance id of the cluster", cookie.instance_id, expected.instance_id),
        ("journal directories", cookie.journal_dirs, expected.journal_dirs),
        ("ledger directories", cookie.ledger_dirs, expected.ledger_dirs),
        ("index directories", _indexes(cookie), _indexes(expected)),
    )
    for what, own, configured in pairs:
        if own != configured:
            expands = config.allow_storage_expansion and what in ("ledger directories", "index directories")
            raise Refused(
                f"{where} is not this bookie's: {what}: {_shown(own)}, configured: {_shown(configured)}",
                hint="allowStorageExpansion would hide the existing ledgers; add another bookie instead"
                if expands
                else "the directories belong to another bookie or another cluster",
            )


def _indexes(cookie: Cookie) -> tuple[str, ...]:
    return cookie.ledger_dirs if cookie.index_dirs is None else cookie.index_dirs


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _contents(disk: Disk, directory: str) -> list[str]:
    """Returns the names in `current`, without a partial cookie of a crash."""
    return [name for name in disk.names(Path(directory) / CURRENT) if name != f"{COOKIE_NAME}.new"]


def _check_empty(disk: Disk, missing: list[str]) -> None:
    for directory in missing:
        names = _contents(disk, directory)
        if names:
            raise Refused(
                f"{directory} has no cookie but is not empty: {names[0]}",
                hint="the data may belong to another bookie",
                directory=directory,
            )


def _write_cookies(disk: Disk, where: list[str], cookie: Cookie) -> None:
    for directory in where:
        disk.replace(Path(directory) / CURRENT / COOKIE_NAME, encode_cookie(cookie))


def was_dirty(disk: Disk, config: BookieConfig) -> bool:
    """Returns True if the last bookie did not stop gracefully. The journal is replayed in any case."""
    return any(disk.exists(Path(d) / CURRENT / DIRTY_NAME) for d in config.ledger_dirs)


def set_dirty(disk: Disk, config: BookieConfig) -> None:
    """Creates DIRTY, which shows a crash at the next start."""
    for directory in config.ledger_dirs:
        path = Path(directory) / CURRENT / DIRTY_NAME
        if not disk.exists(path):
            disk.open(path, create=True, write=True).close()


def clear_dirty(disk: Disk, config: BookieConfig) -> None:
    """Removes DIRTY after the bookie stopped gracefully."""
    for directory in config.ledger_dirs:
        path = Path(directory) / CURRENT / DIRTY_NAME
        if disk.exists(path):
            disk.remove(path)


def read_status(disk: Disk, config: BookieConfig) -> BookieStatusFile | None:
    """Returns the newest BOOKIE_STATUS of the ledger directories; None if none has one."""
    newest: BookieStatusFile | None = None
    for directory in config.ledger_dirs:
        path = Path(directory) / CURRENT / STATUS_NAME
        if not disk.exists(path):
            continue
        try:
            status = decode_status(disk.read(path), source=str(path))
        except BadBytes as e:
            logger.warning("ignoring corrupt status file: %s", e)
            continue
        if newest is None or status.written_ms > newest.written_ms:
            newest = status
    return newest


def write_status(disk: Disk, config: BookieConfig, status: BookieStatusFile) -> None:
    """Persists whether the bookie is read-only, and whether an operator requested that."""
    for directory in config.ledger_dirs:
        path = Path(directory) / CURRENT / STATUS_NAME
        try:
            disk.replace(path, encode_status(status))
        except OSError as e:
            logger.warning("failed to write %s: %s", path, e)
