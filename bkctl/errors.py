"""The tree of errors, and the exit code of each.

    BkctlError
    ├── UsageError           2   invalid command line
    ├── Refused              3   refused by a check: not confirmed, would lose the last copy
    ├── NotFound             4   no such ledger, bookie, file
    │   └── NoSuchLedger, NoSuchEntry
    ├── Conflict             5   another client changed it first (retriable)
    │   └── AlreadyExists
    ├── Unavailable          6   bookie, broker or metadata store does not answer (retriable)
    │   └── NotEnoughBookies, SessionExpired
    ├── ServerError          7   the peer replied with an error: .status as it sent it
    │   └── LedgerFenced, LedgerClosed, Unauthorized
    ├── BadBytes             8   invalid bytes: .source .offset .expected .found
    │   ├── TornTail             a crash truncated the last record; all before it is valid
    │   ├── Corrupt              anything else
    │   └── DigestMismatch       an entry is not what its writer sealed
    └── (checks that ran and found trouble exit with 1; a bug in bkctl with 70; ^C with 130)

`retriable` says whether the same call may succeed later without any change by the caller.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import ClassVar


@unique
class Exit(IntEnum):
    """The exit codes of the bkctl command, a contract with scripts."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    UNAVAILABLE = 6
    SERVER = 7
    BAD_BYTES = 8
    BUG = 70
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """The description of the code."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done; or the answer is yes",
    Exit.FINDINGS: "the check found something; the answer is no; some items of many failed",
    Exit.USAGE: "invalid command line",
    Exit.REFUSED: "refused: not confirmed, protected, would lose the last copy",
    Exit.NOT_FOUND: "not found",
    Exit.CONFLICT: "conflict: another client changed it first",
    Exit.UNAVAILABLE: "unavailable: the store, a bookie or a broker does not answer in time",
    Exit.SERVER: "the server replied with an error: fenced, unauthorized, bad version",
    Exit.BAD_BYTES: "bad bytes: a file or frame cannot be decoded",
    Exit.BUG: "a bug in bkctl: it says where to report it",
    Exit.INTERRUPTED: "interrupted",
}


class BkctlError(Exception):
    """The root of the tree; caught only where an error becomes a message.

    Args:
        message: one sentence for a person.
        hint: what to try next, or None.
        details: machine-readable facts, shown under "details" in JSON.
    """

    exit: ClassVar[Exit] = Exit.BUG
    kind: ClassVar[str] = "bug"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class UsageError(BkctlError):
    """The command line or a configuration value is invalid."""

    exit = Exit.USAGE
    kind = "usage"


class Refused(BkctlError):
    """A check refused: not confirmed, protected, would lose the last copy."""

    exit = Exit.REFUSED
    kind = "refused"


class NotFound(BkctlError):
    """The object does not exist: ledger, bookie, file, znode."""

    exit = Exit.NOT_FOUND
    kind = "not_found"


class NoSuchLedger(NotFound):
    """Metadata, or a bookie, does not know the ledger."""

    kind = "no_such_ledger"


class NoSuchEntry(NotFound):
    """The ledger exists, the entry does not."""

    kind = "no_such_entry"


class Conflict(BkctlError):
    """Another client changed it first; read again and decide again."""

    exit = Exit.CONFLICT
    kind = "conflict"
    retriable = True


class AlreadyExists(Conflict):
    """The object to create exists already."""

    kind = "already_exists"
    retriable = False


class Unavailable(BkctlError):
    """A bookie, a broker or the metadata store does not answer in time."""

    exit = Exit.UNAVAILABLE
    kind = "unavailable"
    retriable = True


class NotEnoughBookies(Unavailable):
    """Placement or a quorum finds too few bookies."""

    kind = "not_enough_bookies"


class SessionExpired(Unavailable):
    """The metadata session has expired, and its ephemeral nodes are deleted."""

    kind = "session_expired"


class ServerError(BkctlError):
    """The peer replied with an error; `status` is its own code."""

    exit = Exit.SERVER
    kind = "server"

    def __init__(self, message: str, *, status: int, hint: str | None = None, **details: object) -> None:
        super().__init__(message, hint=hint, status=status, **details)
        self.status = status


class LedgerFenced(ServerError):
    """Another client recovers, or has recovered, the ledger: this writer must stop."""

    kind = "ledger_fenced"


class LedgerClosed(ServerError):
    """The ledger is closed: nothing can be added."""

    kind = "ledger_closed"


class Unauthorized(ServerError):
    """Wrong ledger password, or not allowed."""

    kind = "unauthorized"


class BadBytes(BkctlError):
    """Bytes that cannot be decoded: where, what was expected, what was found.

    Args:
        source: the file, znode or peer the bytes came from.
        offset: of the first wrong byte, from the start of source.
    """

    exit = Exit.BAD_BYTES
    kind = "bad_bytes"

    def __init__(
        self, what: str, *, source: str, offset: int, expected: object, found: object, hint: str | None = None
    ) -> None:
        super().__init__(
            f"{source} at {offset:#x}: {what}: expected {_shown(expected)}, found {_shown(found)}",
            hint=hint,
            source=source,
            offset=offset,
            expected=_shown(expected),
            found=_shown(found),
        )
        self.what, self.source, self.offset, self.expected, self.found = what, source, offset, expected, found


class TornTail(BadBytes):
    """A crash truncated the last record; everything before it is valid."""

    kind = "torn_tail"


class Corrupt(BadBytes):
    """The bytes are invalid, and a crash does not explain it."""

    kind = "corrupt"


class DigestMismatch(BadBytes):
    """An entry whose digest, ledger id or entry id is not the one its writer sealed."""

    kind = "digest_mismatch"


_SHOWN_BYTES_MAX = 32


def _shown(value: object) -> str:
    """A short text for an expected or found value; long byte strings are truncated."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value[: _SHOWN_BYTES_MAX + 1])
        return repr(raw) if len(raw) <= _SHOWN_BYTES_MAX else repr(raw[:_SHOWN_BYTES_MAX]) + "…"
    return repr(value)
