"""Digests that seal entries, and the keys derived from a ledger's password.

    type     bytes  value
    DUMMY    0      nothing
    CRC32    8      zlib's CRC-32 as an unsigned i64
    CRC32C   4      Castagnoli's CRC as i32
    HMAC     20     HMAC-SHA1, key SHA1("mac" + password)

A digest covers the 32 bytes of metadata, then the payload; for a LAC packet its 16 bytes of metadata.
Source: DigestManager.java, CRC32DigestManager.java, CRC32CDigestManager.java, MacDigestManager.java.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from google_crc32c import extend as _crc32c_extend
from google_crc32c import value as _crc32c_value

from bkctl.model.ledger import DigestType

MASTER_KEY_SIZE: Final = 20
_I64: Final = struct.Struct(">q")
_U32: Final = struct.Struct(">I")


def master_key(password: bytes) -> bytes:
    """The 20 bytes a client shows to bookies: SHA1("ledger" + password)."""
    return hashlib.sha1(b"ledger" + password).digest()


def mac_key(password: bytes) -> bytes:
    """The 20 bytes that HMAC digests are keyed with: SHA1("mac" + password)."""
    return hashlib.sha1(b"mac" + password).digest()


class Digest(ABC):
    """Computes the digest of (metadata, payload); size is its length in bytes."""

    size: ClassVar[int]
    type: ClassVar[DigestType]

    @abstractmethod
    def compute(self, metadata: bytes, payload: bytes) -> bytes:
        """The digest of metadata followed by payload."""


class DummyDigest(Digest):
    """No digest at all; a reader still checks the ids."""

    size = 0
    type = DigestType.DUMMY

    def compute(self, metadata: bytes, payload: bytes) -> bytes:
        """No bytes at all: entries of such a ledger carry no digest."""
        return b""


class Crc32Digest(Digest):
    """zlib's CRC-32 in eight bytes."""

    size = 8
    type = DigestType.CRC32

    def compute(self, metadata: bytes, payload: bytes) -> bytes:
        """Four zero bytes and the CRC."""
        return _I64.pack(zlib.crc32(payload, zlib.crc32(metadata)))


class Crc32cDigest(Digest):
    """Castagnoli's CRC in four bytes; what Pulsar uses."""

    size = 4
    type = DigestType.CRC32C

    def compute(self, metadata: bytes, payload: bytes) -> bytes:
        """The CRC, big-endian."""
        return _U32.pack(_crc32c_extend(_crc32c_value(metadata), payload))


class HmacDigest(Digest):
    """HMAC-SHA1, the only digest that depends on the ledger's password."""

    size = 20
    type = DigestType.HMAC

    def __init__(self, password: bytes) -> None:
        self._keyed = hmac.new(mac_key(password), digestmod=hashlib.sha1)

    def compute(self, metadata: bytes, payload: bytes) -> bytes:
        """The 20 bytes of an HMAC-SHA1 over metadata and payload, keyed by the password."""
        state = self._keyed.copy()
        state.update(metadata)
        state.update(payload)
        return state.digest()


def digest_for(type_: DigestType, password: bytes = b"") -> Digest:
    """The digest of a ledger with this type and password."""
    if type_ is DigestType.HMAC:
        return HmacDigest(password)
    return _PLAIN[type_]


_PLAIN: Final[dict[DigestType, Digest]] = {
    DigestType.DUMMY: DummyDigest(),
    DigestType.CRC32: Crc32Digest(),
    DigestType.CRC32C: Crc32cDigest(),
}
