from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SealKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEAL_UNKNOWN: _ClassVar[SealKind]
    SEAL_CRC32: _ClassVar[SealKind]
    SEAL_HMAC: _ClassVar[SealKind]
    SEAL_CRC32C: _ClassVar[SealKind]
    SEAL_DUMMY: _ClassVar[SealKind]
SEAL_UNKNOWN: SealKind
SEAL_CRC32: SealKind
SEAL_HMAC: SealKind
SEAL_CRC32C: SealKind
SEAL_DUMMY: SealKind

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetReadOnlyRequest(_message.Message):
    __slots__ = ("who", "why")
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    who: str
    why: str
    def __init__(self, who: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class SetWritableRequest(_message.Message):
    __slots__ = ("who",)
    WHO_FIELD_NUMBER: _ClassVar[int]
    who: str
    def __init__(self, who: _Optional[str] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("kind", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    text: str
    def __init__(self, kind: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Disk(_message.Message):
    __slots__ = ("directory", "total_bytes", "free_bytes")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    directory: str
    total_bytes: int
    free_bytes: int
    def __init__(self, directory: _Optional[str] = ..., total_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("directory", "journal_id", "offset", "waiting_bytes")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    directory: str
    journal_id: int
    offset: int
    waiting_bytes: int
    def __init__(self, directory: _Optional[str] = ..., journal_id: _Optional[int] = ..., offset: _Optional[int] = ..., waiting_bytes: _Optional[int] = ...) -> None: ...

class BookieStatus(_message.Message):
    __slots__ = ("bookie_id", "instance_id", "read_only", "reasons", "registered", "throttled", "version", "started_ms", "ledgers", "connections", "cached_bytes", "disks", "journals")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CACHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    JOURNALS_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    instance_id: str
    read_only: bool
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    registered: bool
    throttled: bool
    version: str
    started_ms: int
    ledgers: int
    connections: int
    cached_bytes: int
    disks: _containers.RepeatedCompositeFieldContainer[Disk]
    journals: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, bookie_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., read_only: bool = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., registered: bool = ..., throttled: bool = ..., version: _Optional[str] = ..., started_ms: _Optional[int] = ..., ledgers: _Optional[int] = ..., connections: _Optional[int] = ..., cached_bytes: _Optional[int] = ..., disks: _Optional[_Iterable[_Union[Disk, _Mapping]]] = ..., journals: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class ListLedgersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LedgerPage(_message.Message):
    __slots__ = ("ledger_ids",)
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectGarbageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectGarbageReply(_message.Message):
    __slots__ = ("ledgers", "logs", "bytes")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ledgers: int
    logs: int
    bytes: int
    def __init__(self, ledgers: _Optional[int] = ..., logs: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SealedLedger(_message.Message):
    __slots__ = ("ledger_id", "seal", "password")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    seal: SealKind
    password: bytes
    def __init__(self, ledger_id: _Optional[int] = ..., seal: _Optional[_Union[SealKind, str]] = ..., password: _Optional[bytes] = ...) -> None: ...

class ScanEntriesRequest(_message.Message):
    __slots__ = ("ledgers", "others", "first_ledger", "last_ledger", "batch_rows")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEDGER_FIELD_NUMBER: _ClassVar[int]
    LAST_LEDGER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[SealedLedger]
    others: bool
    first_ledger: int
    last_ledger: int
    batch_rows: int
    def __init__(self, ledgers: _Optional[_Iterable[_Union[SealedLedger, _Mapping]]] = ..., others: bool = ..., first_ledger: _Optional[int] = ..., last_ledger: _Optional[int] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class EntryBatch(_message.Message):
    __slots__ = ("rows", "ledger_id", "entry_id", "last_confirmed", "length", "payload_size", "digest_ok", "content_digest", "size", "bad", "unreadable", "others", "garbage_is_overdue")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_OK_FIELD_NUMBER: _ClassVar[int]
    CONTENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_IS_OVERDUE_FIELD_NUMBER: _ClassVar[int]
    rows: int
    ledger_id: bytes
    entry_id: bytes
    last_confirmed: bytes
    length: bytes
    payload_size: bytes
    digest_ok: bytes
    content_digest: bytes
    size: bytes
    bad: _containers.RepeatedCompositeFieldContainer[BadPlace]
    unreadable: int
    others: _containers.RepeatedScalarFieldContainer[int]
    garbage_is_overdue: bool
    def __init__(self, rows: _Optional[int] = ..., ledger_id: _Optional[bytes] = ..., entry_id: _Optional[bytes] = ..., last_confirmed: _Optional[bytes] = ..., length: _Optional[bytes] = ..., payload_size: _Optional[bytes] = ..., digest_ok: _Optional[bytes] = ..., content_digest: _Optional[bytes] = ..., size: _Optional[bytes] = ..., bad: _Optional[_Iterable[_Union[BadPlace, _Mapping]]] = ..., unreadable: _Optional[int] = ..., others: _Optional[_Iterable[int]] = ..., garbage_is_overdue: bool = ...) -> None: ...

class BadPlace(_message.Message):
    __slots__ = ("row", "file", "offset")
    ROW_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    row: int
    file: str
    offset: int
    def __init__(self, row: _Optional[int] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...
