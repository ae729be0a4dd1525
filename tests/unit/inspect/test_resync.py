"""Where reading goes on behind a damaged size, in the midst of what a journal has: records, then zeros."""

from __future__ import annotations

import random

import pytest
from bkinspect.resync import next_frame

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import encode_entry
from bkctl.model.ledger import DigestType

FILL = 16 << 20


def journal(count: int, fill: int) -> tuple[bytes, list[int]]:
    """Records and where each begins, then zeros."""
    draw, data, places = random.Random(count), bytearray(512), []
    for entry_id in range(count):
        body = encode_entry(
            25, entry_id, entry_id - 1, entry_id * 9, draw.randbytes(100), digest_for(DigestType.CRC32C)
        )
        places.append(len(data))
        data += len(body).to_bytes(4, "big") + body
    return bytes(data) + bytes(fill), places


@pytest.mark.parametrize("fill", [600, FILL])
@pytest.mark.parametrize("behind", [1, 2, 3, 4])
def test_a_size_read_late_does_not_swallow_the_rest(fill: int, behind: int) -> None:
    """The size is 136: two bytes late it is 8,912,896, which ends in the zeros of a file of 16 MiB."""
    data, places = journal(50, fill)

    def read(count: int, offset: int) -> bytes:
        return data[offset : offset + count]

    assert next_frame(read, len(data), places[7] + behind, journal=True) == places[8]


def test_the_last_record_is_found_though_only_zeros_follow() -> None:
    data, places = journal(50, 4096)

    def read(count: int, offset: int) -> bytes:
        return data[offset : offset + count]

    assert next_frame(read, len(data), places[48] + 9, journal=True) == places[49]
    assert next_frame(read, len(data), places[49] + 9, journal=True) is None
