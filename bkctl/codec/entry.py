"""Entry bytes, the same on the wire, in the journal and in entry logs; and the explicit-LAC packet.

    entry    offset  size  type   meaning
             0       8     i64    ledger id
             8       8     i64    entry id
             16      8     i64    last add confirmed of the writer when it packed the entry, -1 if none
             24      8     i64    payload bytes of the ledger up to and including this entry
             32      D            digest over the 32 bytes above and the payload (0, 4, 8 or 20 bytes)
             32+D                 payload

    LAC      0       8     i64    ledger id
    packet   8       8     i64    last add confirmed
             16      D            digest over the 16 bytes above

Integers are big-endian. Source: DigestManager.java (computeDigestAndPackageForSending…, verifyDigest…).
"""

from __future__ import annotations

import struct
from typing import Final

from bkctl.codec.checksum import Digest
from bkctl.errors import DigestMismatch
from bkctl.model.entry import Entry

METADATA_SIZE: Final = 32
LAC_METADATA_SIZE: Final = 16
IDS: Final = struct.Struct(">qq")  # ledger id, entry id
METADATA: Final = struct.Struct(
    ">q"  # ledger id
    "q"  # entry id
    "q"  # last add confirmed
    "q"  # length
)
assert METADATA.size == METADATA_SIZE


def encode_entry(
    ledger_id: int, entry_id: int, last_confirmed: int, length: int, payload: bytes, digest: Digest
) -> bytes:
    """The bytes a bookie stores for one entry; length includes this payload."""
    metadata = METADATA.pack(ledger_id, entry_id, last_confirmed, length)
    return b"".join((metadata, digest.compute(metadata, payload), payload))


def decode_entry(
    data: bytes, digest: Digest, ledger_id: int, entry_id: int | None = None, *, source: str = "entry"
) -> Entry:
    """Opens entry bytes and checks them; entry_id None accepts whatever entry it is (the answer to a read of -1).

    Raises:
        DigestMismatch: too short, sealed otherwise, or another ledger's or entry's bytes.
    """
    if len(data) < METADATA_SIZE + digest.size:
        raise DigestMismatch(
            "entry too short", source=source, offset=0, expected=METADATA_SIZE + digest.size, found=len(data)
        )
    metadata = bytes(data[:METADATA_SIZE])
    body = METADATA_SIZE + digest.size
    payload = bytes(data[body:])
    found = bytes(data[METADATA_SIZE:body])
    expected = digest.compute(metadata, payload)
    if found != expected:
        raise DigestMismatch("digest", source=source, offset=METADATA_SIZE, expected=expected.hex(), found=found.hex())
    ledger, entry, last_confirmed, length = METADATA.unpack(metadata)
    if ledger != ledger_id:
        raise DigestMismatch("ledger id", source=source, offset=0, expected=ledger_id, found=ledger)
    if entry_id is not None and entry != entry_id:
        raise DigestMismatch("entry id", source=source, offset=8, expected=entry_id, found=entry)
    return Entry(ledger, entry, last_confirmed, length, payload)


def is_sealed(data: bytes, digest: Digest, ledger_id: int, entry_id: int) -> bool:
    """True for the bytes of this very entry with the right digest: decode_entry's checks, without taking it apart."""
    body = METADATA_SIZE + digest.size
    return (
        len(data) >= body
        and data[: IDS.size] == IDS.pack(ledger_id, entry_id)
        and digest.compute(data[:METADATA_SIZE], data[body:]) == data[METADATA_SIZE:body]
    )


def encode_lac(ledger_id: int, last_confirmed: int, digest: Digest) -> bytes:
    """The packet that carries an explicit last add confirmed."""
    metadata = IDS.pack(ledger_id, last_confirmed)
    return metadata + digest.compute(metadata, b"")


def decode_lac(data: bytes, digest: Digest, ledger_id: int, *, source: str = "LAC packet") -> int:
    """The last add confirmed in a packet; bytes after the digest are ignored.

    Raises:
        DigestMismatch: too short, sealed otherwise, or another ledger's packet.
    """
    size = LAC_METADATA_SIZE + digest.size
    if len(data) < size:
        raise DigestMismatch("LAC packet too short", source=source, offset=0, expected=size, found=len(data))
    metadata, found = bytes(data[:LAC_METADATA_SIZE]), bytes(data[LAC_METADATA_SIZE:size])
    expected = digest.compute(metadata, b"")
    if found != expected:
        raise DigestMismatch(
            "digest", source=source, offset=LAC_METADATA_SIZE, expected=expected.hex(), found=found.hex()
        )
    ledger, last_confirmed = IDS.unpack(metadata)
    if ledger != ledger_id:
        raise DigestMismatch("ledger id", source=source, offset=0, expected=ledger_id, found=ledger)
    return int(last_confirmed)
