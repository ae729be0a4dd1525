"""What damaged bytes do: a decoder gives an answer, or raises the BadBytes tree and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from bkctl.errors import BadBytes

P = ParamSpec("P")


def fault_offset(decode: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """Where decode finds a fault, 0 where it finds none; anything but BadBytes ends the test."""
    try:
        decode(*args, **kwargs)
    except BadBytes as error:
        return error.offset
    return 0
