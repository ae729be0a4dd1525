"""Digests and keys against the vectors that Java's classes gave."""

from __future__ import annotations

import pytest

from bkctl.codec.checksum import digest_for, mac_key, master_key
from bkctl.model.ledger import DigestType

METADATA = bytes.fromhex("0000000000000007000000000000002a00000000000000290000000000003039")


@pytest.mark.parametrize(
    ("password", "expected"),
    [(b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"), (b"secret", "e793cbc379107648537183605cd361d3bb789a39")],
)
def test_master_key(password: bytes, expected: str) -> None:
    assert master_key(password).hex() == expected


@pytest.mark.parametrize(
    ("password", "expected"),
    [(b"", "347ead6348e936507920c15d2ae8266ac6ce9b49"), (b"secret", "190c685bae851574f5ab47c960a00c0466f96603")],
)
def test_mac_key(password: bytes, expected: str) -> None:
    assert mac_key(password).hex() == expected


@pytest.mark.parametrize(
    ("type_", "password", "expected"),
    [
        (DigestType.CRC32C, b"", "17809dcc"),
        (DigestType.CRC32, b"", "0000000096698e2b"),
        (DigestType.HMAC, b"", "0e34adc5f922c991303e19df861a90ed8d6e92e4"),
        (DigestType.HMAC, b"secret", "06d302f6118cd60e0555668da28a4346d05508e8"),
        (DigestType.DUMMY, b"secret", ""),
    ],
)
def test_digest_of_an_entry(type_: DigestType, password: bytes, expected: str) -> None:
    digest = digest_for(type_, password)
    assert digest.compute(METADATA, b"hello").hex() == expected
    assert digest.size == len(expected) // 2
    assert digest.type is type_


def test_one_digest_object_seals_many_entries() -> None:
    digest = digest_for(DigestType.HMAC, b"secret")
    first = digest.compute(METADATA, b"hello")
    digest.compute(METADATA, b"another")
    assert digest.compute(METADATA, b"hello") == first
