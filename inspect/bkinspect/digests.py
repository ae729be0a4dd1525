"""Checks the digests of entries whose digest type may be unknown: neither entry logs nor journals store the type.

Where the type is given (by metadata, or by the user), the result is True or False. Otherwise it is deduced for each
ledger: the first entry that matches CRC32C, CRC32, or HMAC with the password determines the type of its ledger, and
from then on an entry that does not match is corrupt. Until then the result is None (unknown), and it remains None for
ledgers without a digest (DUMMY), or with HMAC and another password. An entry matches by chance once in 2^32.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from google_crc32c import extend, value

from bkctl.codec.checksum import Digest, digest_for
from bkctl.codec.entry import METADATA_SIZE
from bkctl.model.ledger import DigestType

_CRC32C: Final = digest_for(DigestType.CRC32C)
_CRC32C_END: Final = METADATA_SIZE + _CRC32C.size
_U32: Final = struct.Struct(">I")
_JOINED_SIZE_MAX: Final = 1 << 16
ATTEMPTS_MAX: Final = 64
"""Entries of a ledger that are tried before deduction stops and its digest remains unknown."""
LEDGERS_REMEMBERED_MAX: Final = 1_000_000


class DigestBook:
    """The digest of each ledger, given or deduced.

    Args:
        digest_type: of all ledgers; None deduces it.
        password: of all ledgers; None tries the empty password, and a mismatch with it leaves the result unknown.
        known: digests by ledger, for example from metadata; they take precedence.
    """

    def __init__(
        self,
        digest_type: DigestType | None = None,
        password: bytes | None = None,
        known: Mapping[int, Digest] | None = None,
    ) -> None:
        self._given = dict(known or {})
        self._known = dict(self._given)
        self._attempts: dict[int, int] = {}
        self._fixed: Digest | None = None
        self._tried: tuple[Digest, ...] = ()
        hmac = digest_for(DigestType.HMAC, password or b"")
        if digest_type is None:
            self._tried = (digest_for(DigestType.CRC32C), digest_for(DigestType.CRC32), hmac)
        elif digest_type is DigestType.HMAC and password is None:
            self._tried = (hmac,)
        else:
            self._fixed = digest_for(digest_type, password or b"")

    def check(self, ledger_id: int, entry: bytes) -> bool | None:
        """Returns True if the entry matches its digest, False if not, None if the digest is unknown."""
        digest = self._known.get(ledger_id, self._fixed)
        if digest is _CRC32C:  # as below, in two thirds of the time: most entries of most clusters use CRC32C
            if len(entry) < _CRC32C_END:
                return False
            if len(entry) <= _JOINED_SIZE_MAX:  # one call over a copy costs less than two calls
                crc = value(entry[:METADATA_SIZE] + entry[_CRC32C_END:])
            else:
                crc = extend(value(entry[:METADATA_SIZE]), entry[_CRC32C_END:])
            return bool(crc == _U32.unpack_from(entry, METADATA_SIZE)[0])
        if digest is None:
            return self._deduce(ledger_id, entry)
        body = METADATA_SIZE + digest.size
        return digest.compute(entry[:METADATA_SIZE], entry[body:]) == entry[METADATA_SIZE:body]

    def _deduce(self, ledger_id: int, entry: bytes) -> bool | None:
        attempts = self._attempts.get(ledger_id, 0)
        if attempts >= ATTEMPTS_MAX:
            return None
        if len(self._attempts) >= LEDGERS_REMEMBERED_MAX:
            self._attempts.clear()
        if len(self._known) >= LEDGERS_REMEMBERED_MAX:
            self._known = dict(self._given)
        for digest in self._tried:
            body = METADATA_SIZE + digest.size
            if len(entry) >= body and digest.compute(entry[:METADATA_SIZE], entry[body:]) == entry[METADATA_SIZE:body]:
                self._known[ledger_id] = digest
                self._attempts.pop(ledger_id, None)
                return True
        self._attempts[ledger_id] = attempts + 1
        return None

    def payload_offset(self, ledger_id: int) -> int | None:
        """Returns where the payload starts in entries of a ledger; None while its digest type is unknown."""
        digest = self._known.get(ledger_id, self._fixed)
        return None if digest is None else METADATA_SIZE + digest.size

    def deduced(self, ledger_id: int) -> DigestType | None:
        """Returns the digest type of a ledger, None while it is unknown."""
        digest = self._known.get(ledger_id, self._fixed)
        return None if digest is None else digest.type
