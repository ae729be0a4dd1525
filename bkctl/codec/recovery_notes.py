"""The nodes that bkctl's auto recovery writes for itself, below `underreplication/bkctl`: JSON, small, and nothing Java
reads.

    node                 record             life
    switch               SwitchLog          for ever; who turned auto recovery off or on, why, until when
    auditor              AuditorNote        ephemeral: the auditor is one of bkctl's, and takes requests
    requests/q_########  CheckRequest       from the asking to the end of the check
    results/<check>      CheckResult        the last run of each check
    workers/<name>       WorkerNote         ephemeral: what a worker does, how fast
    lost/<ledger id>     LostNote           a ledger with entries that no bookie has, while it is in the queue

Every text and list has a bound, so that a node stays far below ZooKeeper's limit of 1 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum, unique
from typing import Any, Final, TypeVar, get_type_hints

from bkctl.errors import Corrupt

TEXT_MAX: Final = 300
"""Characters of a reason, a finding, a name; longer texts are truncated."""
CHANGES_MAX: Final = 20
FINDINGS_MAX: Final = 100
SERVED_MAX: Final = 100
LEDGERS_SHOWN_MAX: Final = 100
ENTRIES_SHOWN_MAX: Final = 100
RecordT = TypeVar("RecordT", bound="Record")


@unique
class CheckName(StrEnum):
    """The auditor's checks."""

    BOOKIES = "bookies"
    ALL = "all"
    PLACEMENT = "placement"
    REPLICAS = "replicas"


@dataclass(frozen=True, slots=True)
class Record:
    """One record: a frozen dataclass of plain values, dataclasses of such, and tuples of them."""

    def encode(self) -> bytes:
        """The bytes of the node."""
        return json.dumps(_bounded(asdict(self)), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls: type[RecordT], data: bytes, *, source: str) -> RecordT:
        """Reads a node. Fields that a later version added are skipped, missing ones have their default.

        Raises:
            Corrupt: no such record.
        """
        try:
            return _made(cls, json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
            raise Corrupt(f"not a {cls.__name__}", source=source, offset=0, expected="JSON", found=str(e)) from None


@dataclass(frozen=True, slots=True)
class SwitchChange(Record):
    """Auto recovery was disabled (until a time, or for good) or enabled."""

    enabled: bool
    at_ms: int
    who: str
    reason: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SwitchLog(Record):
    """The last CHANGES_MAX changes that bkctl made, newest first."""

    changes: tuple[SwitchChange, ...] = ()

    def with_change(self, change: SwitchChange) -> SwitchLog:
        """The log with one more change."""
        return SwitchLog((change, *self.changes)[:CHANGES_MAX])


@dataclass(frozen=True, slots=True)
class AuditorNote(Record):
    """The auditor; the node's session identifies it."""

    auditor: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class CheckRequest(Record):
    """A request for a check now."""

    check: CheckName
    who: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One thing a check found."""

    ledger_id: int
    text: str


@dataclass(frozen=True, slots=True)
class CheckResult(Record):
    """The result of one run of a check: counts by name, the first findings, the requests that it answers.

    error is null for a run that completed.
    """

    check: CheckName
    by: str
    started_ms: int
    ended_ms: int
    figures: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    findings_count: int = 0
    error: str | None = None
    served: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerNote(Record):
    """A ledger whose lock a worker has: `copying` it, or keeping the lock for a `grace` period or a `pause`."""

    ledger_id: int
    state: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class WorkerNote(Record):
    """The state of a worker. bytes_per_s is its recent rate, 0 where it does not copy."""

    worker: str
    host: str
    at_ms: int
    bytes_per_s: int
    bytes_copied: int
    ledgers_repaired: int
    ledgers_failed: int
    ledgers: tuple[LedgerNote, ...] = ()


@dataclass(frozen=True, slots=True)
class LostNote(Record):
    """Entries that every bookie which should have them says it does not have.

    next_ms is the time of the next attempt; None: only after a request.
    """

    ledger_id: int
    first_ms: int
    last_ms: int
    tries: int
    next_ms: int | None
    worker: str
    reason: str
    entries: tuple[int, ...]
    entries_count: int


def _bounded(value: Any) -> Any:
    """The same with texts cut to TEXT_MAX."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[: TEXT_MAX - 1] + "…"
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    return [_bounded(item) for item in value] if isinstance(value, list | tuple) else value


def _made(cls: type[RecordT], found: Any) -> RecordT:
    """A record from parsed JSON; raises where a value is not of its field's type."""
    hints = get_type_hints(cls)
    if not isinstance(found, dict):
        raise TypeError(f"{type(found).__name__}, not an object")
    known = {f.name: _value(hints[f.name], found[f.name], f.name) for f in fields(cls) if f.name in found}
    return cls(**known)


def _value(hint: Any, value: Any, name: str) -> Any:
    """A parsed value as its field wants it."""
    args: Sequence[Any] = getattr(hint, "__args__", ())
    if type(None) in args:
        return None if value is None else _value(next(a for a in args if a is not type(None)), value, name)
    if getattr(hint, "__origin__", None) is tuple and isinstance(value, list):
        return tuple(_value(args[0], item, name) for item in value)
    if args and isinstance(value, dict):  # figures
        return {str(key): _value(int, item, name) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return _made(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise TypeError(f"{name} is {value!r}")
    return value
