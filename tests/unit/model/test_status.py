"""The statuses of a bookie's replies and their codes in v3, against the protobuf enumeration."""

from __future__ import annotations

import pytest

from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto
from bkctl.model.status import OF_V3, V3_OF, Status

JAVA_NAMES = {
    Status.OK: "EOK",
    Status.NO_LEDGER: "ENOLEDGER",
    Status.NO_ENTRY: "ENOENTRY",
    Status.BAD_REQUEST: "EBADREQ",
    Status.IO_ERROR: "EIO",
    Status.UNAUTHORIZED: "EUA",
    Status.BAD_VERSION: "EBADVERSION",
    Status.FENCED: "EFENCED",
    Status.READ_ONLY: "EREADONLY",
    Status.TOO_MANY_REQUESTS: "ETOOMANYREQUESTS",
    Status.UNKNOWN_LEDGER_STATE: "EUNKNOWNLEDGERSTATE",
}


@pytest.mark.parametrize("status", Status)
def test_a_status_has_the_v3_code_of_the_protobuf_enumeration(status: Status) -> None:
    assert proto.StatusCode.Name(status.v3) == JAVA_NAMES[status]
    assert OF_V3[status.v3] is status


def test_every_v3_code_has_a_status() -> None:
    assert set(OF_V3) == set(proto.StatusCode.values())
    assert len(set(V3_OF.values())) == len(Status)


def test_an_unknown_v3_code_has_no_status() -> None:
    with pytest.raises(KeyError):
        OF_V3[500]
