"""Codes of Pulsar's protocol for errors of requests."""

from __future__ import annotations

import pytest
from bkdaemon.broker.refusal import Refusal, error_code

from bkctl.codec.pulsar import ErrorCode
from bkctl.errors import (
    AlreadyExists,
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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refusal(ErrorCode.PRODUCER_BUSY, "busy"), ErrorCode.PRODUCER_BUSY),
        (Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "schema"), ErrorCode.INCOMPATIBLE_SCHEMA),
        (NotFound("no topic"), ErrorCode.TOPIC_NOT_FOUND),
        (Unavailable("no bookie"), ErrorCode.SERVICE_NOT_READY),
        (Conflict("another version"), ErrorCode.SERVICE_NOT_READY),
        (LedgerFenced("fenced", status=101), ErrorCode.SERVICE_NOT_READY),
        (LedgerClosed("closed", status=1), ErrorCode.SERVICE_NOT_READY),
        (UsageError("bad name"), ErrorCode.INVALID_TOPIC_NAME),
        (Refused("not allowed"), ErrorCode.NOT_ALLOWED),
        (ServerError("a bookie's error", status=-1), ErrorCode.PERSISTENCE),
        (AlreadyExists("there"), ErrorCode.SERVICE_NOT_READY),
        (BkctlError("anything else"), ErrorCode.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_the_code_that_tells_clients_whether_to_retry(error: BkctlError, code: ErrorCode) -> None:
    assert error_code(error) == code


def test_a_refusal_keeps_its_message_and_has_its_code_as_status() -> None:
    refusal = Refusal(ErrorCode.CONSUMER_BUSY, "too many consumers")
    assert (refusal.message, refusal.code, refusal.kind) == ("too many consumers", ErrorCode.CONSUMER_BUSY, "refusal")
    assert refusal.status == ErrorCode.CONSUMER_BUSY
