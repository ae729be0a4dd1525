"""The nodes of auto recovery: records encoded, decoded, bounded."""

from __future__ import annotations

import pytest

from bkctl.codec.recovery_notes import (
    CHANGES_MAX,
    FINDINGS_MAX,
    TEXT_MAX,
    AuditorNote,
    CheckName,
    CheckRequest,
    CheckResult,
    Finding,
    SwitchChange,
    SwitchLog,
)
from bkctl.errors import Corrupt
from tests.unit.codec.recovery_records import LOST, RESULT, WORKER


@pytest.mark.parametrize(
    "record",
    [RESULT, WORKER, LOST, AuditorNote("a", 1), CheckRequest(CheckName.ALL, "me", 1),
     SwitchLog((SwitchChange(False, 1, "me", "why", 2), SwitchChange(True, 1, "me", "why")))],
    ids=lambda record: type(record).__name__,
)  # fmt: skip
def test_an_encoded_record_is_decoded_to_the_same_value(record: object) -> None:
    data = record.encode()  # type: ignore[attr-defined]
    assert type(record).decode(data, source="test") == record  # type: ignore[attr-defined]
    assert type(record).decode(data[:-1] + b',"later":[1]}', source="test") == record  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"check":"x"}', b"\xff", b'{"check":"all","who":1,"at_ms":1}'])
def test_bytes_that_are_no_record_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="CheckRequest"):
        CheckRequest.decode(data, source="test")


def test_a_result_is_small_however_much_was_found() -> None:
    findings = tuple(Finding(i, "x" * 10_000) for i in range(FINDINGS_MAX))
    result = CheckResult(CheckName.ALL, "y" * 10_000, 1, 2, {}, findings, 10**6, "z" * 10_000)
    assert len(result.encode()) < FINDINGS_MAX * (TEXT_MAX + 60) + 2_000


def test_a_log_of_changes_keeps_the_newest() -> None:
    log = SwitchLog()
    for at_ms in range(CHANGES_MAX + 5):
        log = log.with_change(SwitchChange(at_ms % 2 == 0, at_ms, "me", "why"))
    assert [change.at_ms for change in log.changes] == list(range(CHANGES_MAX + 4, 4, -1))


def test_a_missing_field_has_its_default() -> None:
    data = b'{"check":"all","by":"b1:3181","started_ms":1,"ended_ms":2}'
    assert CheckResult.decode(data, source="test") == CheckResult(CheckName.ALL, "b1:3181", 1, 2)


def test_a_long_text_is_truncated_with_an_ellipsis() -> None:
    request = CheckRequest(CheckName.ALL, "x" * (TEXT_MAX + 1), 1)
    assert CheckRequest.decode(request.encode(), source="test").who == "x" * (TEXT_MAX - 1) + "…"
    whole = CheckRequest(CheckName.ALL, "x" * TEXT_MAX, 1)
    assert CheckRequest.decode(whole.encode(), source="test") == whole


@pytest.mark.parametrize("value", ["true", "1.5", '"1"', "null", "[1]"])
def test_a_value_of_another_type_is_corrupt_with_the_name_of_its_field(value: str) -> None:
    with pytest.raises(Corrupt, match="at_ms is") as caught:
        CheckRequest.decode(b'{"check":"all","who":"me","at_ms":%s}' % value.encode(), source="/node")
    assert caught.value.source == "/node"


def test_deeply_nested_json_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        CheckRequest.decode(b"[" * 200_000, source="test")
