"""The pieces of a frame that arrives in several reads."""

from __future__ import annotations

from typing import Final

PIECE_MAX: Final = 4 * 1024
"""Shorter pieces are joined: an object for each byte would take forty times the memory of the frame."""
JOINED_MAX: Final = 64 * 1024


def append_piece(held: list[bytes | bytearray], piece: bytes) -> None:
    """Appends a piece to those of the same frame, of which there is at least one."""
    newest = held[-1]
    if len(piece) >= PIECE_MAX:
        held.append(piece)
    elif isinstance(newest, bytearray) and len(newest) < JOINED_MAX:
        newest += piece
    else:
        held.append(bytearray(piece))
