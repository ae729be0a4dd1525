"""The statuses in replies of a bookie, with their codes in v2 and v3.

    status                  v2    v3    a client may …
    OK                      0     0
    NO_LEDGER               1     402   count it as an explicit "not here"
    NO_ENTRY                2     403   count it as an explicit "not here"
    BAD_REQUEST             100   404
    IO_ERROR                101   501   try another replica
    UNAUTHORIZED            102   502   stop: wrong ledger password
    BAD_VERSION             103   503
    FENCED                  104   504   stop writing: the ledger is being recovered
    READ_ONLY               105   505   replace the bookie
    TOO_MANY_REQUESTS       106   506   slow down
    UNKNOWN_LEDGER_STATE    107   507   count it as "unknown", never as "not here"

The value of a member is its v2 number; `v3` gives the other. Source: BookieProtocol.java, BookkeeperProtocol.proto.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final


@unique
class Status(IntEnum):
    """A bookie's answer, numbered as in wire protocol v2."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107

    @property
    def v3(self) -> int:
        """The same status as a v3 StatusCode."""
        return V3_OF[self]


V3_OF: Final[dict[int, int]] = {
    Status.OK: 0,
    Status.NO_LEDGER: 402,
    Status.NO_ENTRY: 403,
    Status.BAD_REQUEST: 404,
    Status.IO_ERROR: 501,
    Status.UNAUTHORIZED: 502,
    Status.BAD_VERSION: 503,
    Status.FENCED: 504,
    Status.READ_ONLY: 505,
    Status.TOO_MANY_REQUESTS: 506,
    Status.UNKNOWN_LEDGER_STATE: 507,
}
OF_V3: Final[dict[int, Status]] = {number: Status(status) for status, number in V3_OF.items()}
