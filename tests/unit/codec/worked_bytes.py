"""The worked examples of the format texts: one ledger, two entries, a log and a journal that hold them."""

from __future__ import annotations

LEDGER = 5
KEY = bytes.fromhex("2aa226ba095b6969a64871977693b14671710d76")
ENTRY_0 = bytes.fromhex("00000000000000050000000000000000ffffffffffffffff0000000000000005b548f36968656c6c6f")
ENTRY_1 = bytes.fromhex("000000000000000500000000000000010000000000000000000000000000000ab07e0015776f726c64")
LAC_PACKET = bytes.fromhex("000000000000000500000000000000019aea0d92")

LOG_HEADER = bytes.fromhex("424b4c4f00000001000000000000045a00000001").ljust(1024, b"\0")
LOG_FRAMES = b"\0\0\0\x29" + ENTRY_0 + b"\0\0\0\x29" + ENTRY_1
LOG_MAP = bytes.fromhex("00000024fffffffffffffffffffffffffffffffe000000010000000000000005000000000000005a")
LOG = LOG_HEADER + LOG_FRAMES + LOG_MAP

JOURNAL = b"".join(
    (
        bytes.fromhex("424b4c4700000006").ljust(512, b"\0"),
        bytes.fromhex("000000280000000000000005fffffffffffff00000000014"),
        KEY,
        b"\0\0\0\x29",
        ENTRY_0,
        bytes.fromhex("ffffff000000019f").ljust(8 + 415, b"\0"),
        bytes.fromhex("000000100000000000000005ffffffffffffe000"),
        bytes.fromhex("000000280000000000000005ffffffffffff800000000014"),
        LAC_PACKET,
        bytes.fromhex("ffffff00000001b8").ljust(8 + 440, b"\0"),
        bytes(512),
    )
)
JOURNAL_DATA_END = 0x600
