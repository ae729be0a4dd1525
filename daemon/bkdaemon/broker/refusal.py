"""The error of a request: a code of Pulsar's protocol and a message."""

from __future__ import annotations

from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import (
    BkctlError,
    Conflict,
    LedgerClosed,
    LedgerFenced,
    NotFound,
    Refused,
    ServerError,
    Unavailable,
    UsageError,
)


class Refusal(ServerError):
    """A refused request, with a code of the protocol."""

    kind = "refusal"

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message, status=code)
        self.code = code


def error_code(error: BkctlError) -> ErrorCode:
    """Return the protocol's code of an error; SERVICE_NOT_READY makes clients repeat the lookup."""
    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, NotFound):
        return ErrorCode.TOPIC_NOT_FOUND
    if isinstance(error, Unavailable | Conflict | LedgerFenced | LedgerClosed):
        return ErrorCode.SERVICE_NOT_READY
    if isinstance(error, UsageError):
        return ErrorCode.INVALID_TOPIC_NAME
    if isinstance(error, Refused):
        return ErrorCode.NOT_ALLOWED
    if isinstance(error, ServerError):
        return ErrorCode.PERSISTENCE
    return ErrorCode.UNKNOWN
