"""What can be known of a digest without metadata, and what cannot."""

from __future__ import annotations

import pytest
from bkinspect.digests import ATTEMPTS_MAX, DigestBook

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.model.ledger import DigestType


def entry(type_: DigestType, password: bytes = b"", entry_id: int = 0) -> bytes:
    return encode_entry(7, entry_id, -1, 5, b"hello", digest_for(type_, password))


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("type_", [DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC])
def test_deduced_from_one_sound_entry(type_: DigestType) -> None:
    book = DigestBook()
    assert book.check(7, broken(entry(type_))) is None
    assert book.deduced(7) is None
    assert book.check(7, entry(type_)) is True
    assert book.deduced(7) is type_
    assert book.check(7, broken(entry(type_))) is False
    assert book.check(7, entry(type_)[:34]) is False


def test_unknowable() -> None:
    book = DigestBook()
    for data in (entry(DigestType.DUMMY), entry(DigestType.HMAC, b"secret"), b"", bytes(31)):
        for _ in range(ATTEMPTS_MAX + 2):
            assert book.check(7, data) is None


def test_given_types_and_passwords() -> None:
    assert DigestBook(DigestType.DUMMY).check(7, entry(DigestType.DUMMY)) is True
    assert DigestBook(DigestType.CRC32C).check(7, entry(DigestType.CRC32)) is False
    sealed = entry(DigestType.HMAC, b"secret")
    assert DigestBook(DigestType.HMAC).check(7, sealed) is None
    assert DigestBook(DigestType.HMAC, b"secret").check(7, sealed) is True
    assert DigestBook(DigestType.HMAC, b"wrong").check(7, sealed) is False
    assert DigestBook(password=b"secret").check(7, sealed) is True
    assert DigestBook(password=b"wrong").check(7, sealed) is None
    known = DigestBook(known={7: digest_for(DigestType.HMAC, b"secret")})
    assert known.check(7, sealed) is True
    assert known.check(7, broken(sealed)) is False
    assert known.check(8, entry(DigestType.CRC32C)) is True
