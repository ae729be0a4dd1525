"""Checks entries whose digest type is not at hand: neither log nor journal says how an entry was sealed.

Where the type is given (from metadata, or by the user), an answer is True or False. Otherwise it is deduced ledger by
ledger: an entry that fits CRC32C, CRC32, or HMAC with the password settles the type for its ledger, and from then on
an entry that does not fit is wrong. Until then, and for ever in ledgers without a digest (DUMMY) or with HMAC and
another password, nothing can be known, and the answer None says so. An entry fits by chance once in 2^32.
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
"""Entries of a ledger that are tried before its digest counts as unknowable."""
LEDGERS_REMEMBERED_MAX: Final = 1_000_000


class DigestBook:
    """What is known of each ledger's digest.

    Args:
        digest_type: of all ledgers, None to deduce.
        password: of all ledgers; None tries the empty one, and never calls an HMAC wrong for it.
        known: digests by ledger, as from metadata; they come first.
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
        """True if the entry is as it was sealed, False if not, None if that cannot be known."""
        digest = self._known.get(ledger_id, self._fixed)
        if digest is _CRC32C:  # as below, in two thirds of the time: most entries of most clusters pass here
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
        """Where the payload starts in entries of a ledger; None while its digest, hence its size, is not known."""
        digest = self._known.get(ledger_id, self._fixed)
        return None if digest is None else METADATA_SIZE + digest.size

    def deduced(self, ledger_id: int) -> DigestType | None:
        """The digest type of a ledger as far as it is known."""
        digest = self._known.get(ledger_id, self._fixed)
        return None if digest is None else digest.type
