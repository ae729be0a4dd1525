"""Java's keys for auto recovery, and its defaults."""

from __future__ import annotations

import pytest
from bkrecovery.overdue import too_old
from bkrecovery.settings import RECOVERY_KEYS, UNUSED_KEYS, RecoverySettings, unused

from bkctl.codec.underreplication import Marker
from bkctl.errors import UsageError

KEYS = [
    ("lostBookieRecoveryDelay", "60", "lost_bookie_delay_s", 60),
    ("auditorPeriodicBookieCheckInterval", "0", "bookie_check_s", 0.0),
    ("auditorPeriodicCheckInterval", "-1", "ledger_check_s", -1.0),
    ("auditorPeriodicPlacementPolicyCheckInterval", "0", "placement_check_s", 0.0),
    ("auditorReplicasCheckInterval", "3600", "replicas_check_s", 3600.0),
    ("repairedPlacementPolicyNotAdheringBookieEnabled", "true", "repair_placement", True),
    ("underreplicatedLedgerRecoveryGracePeriod", "900", "recovery_grace_s", 900.0),
    ("auditorLedgerVerificationPercentage", "7", "verify_percentage", 7),
    ("openLedgerRereplicationGracePeriod", "2500", "open_grace_s", 2.5),
    ("lockReleaseOfFailedLedgerGracePeriod", "64000", "failure_pause_s", 64.0),
    ("rwRereplicateBackoffMs", "250", "retry_pause_s", 0.25),
    ("replicationRateByBytes", "1000", "rate_bytes_per_s", 1000.0),
    ("storeSystemTimeAsLedgerUnderreplicatedMarkTime", "false", "mark_time", False),
    ("rereplicationEntryBatchSize", "10", None, None),  # known, and of no use here: UNUSED_KEYS
]


@pytest.mark.parametrize(("key", "text", "field", "value"), KEYS, ids=[k[0] for k in KEYS])
def test_keys(key: str, text: str, field: str | None, value: object) -> None:
    found, default = RecoverySettings.of({key: text}), RecoverySettings()
    changed = {name for name in RecoverySettings.__slots__ if getattr(found, name) != getattr(default, name)}
    assert changed == ({field} if field else set())
    assert field is None or getattr(found, field) == value


def test_the_list_of_keys_is_what_is_read() -> None:
    class Recorder(dict[str, str]):
        def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
            self[key] = default
            return default

    recorder = Recorder()
    RecoverySettings.of(recorder)
    assert set(recorder) == RECOVERY_KEYS


def test_an_unused_key_of_java_is_reported_and_ignored() -> None:
    assert UNUSED_KEYS.keys().isdisjoint(RECOVERY_KEYS)
    (line,) = unused({"rereplicationEntryBatchSize": "100", "replicationRateByBytes": "1"})
    assert line.startswith("rereplicationEntryBatchSize is ignored: ")
    assert "replicationRateByBytes" in line
    assert unused({"rereplicationEntryBatchSize": " "}) == []


def test_defaults_are_javas_but_for_the_daily_check_of_placement() -> None:
    found = RecoverySettings.of({})
    assert (found.bookie_check_s, found.ledger_check_s, found.placement_check_s) == (86_400, 604_800, 86_400)
    assert (found.replicas_check_s, found.repair_placement, found.recovery_grace_s) == (0, False, 0)
    assert (found.failure_pause_s, found.retry_pause_s, found.open_grace_s) == (300, 5, 30)


@pytest.mark.parametrize("key", ["rwRereplicateBackoffMs", "repairedPlacementPolicyNotAdheringBookieEnabled"])
def test_a_value_that_is_not_valid_is_refused_with_its_key(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        RecoverySettings.of({key: "soon"})


def test_too_old() -> None:
    markers = [(1, Marker((), 1_000)), (2, Marker((), None)), (3, Marker((), 50_000)), (4, Marker((), 40_000))]
    assert too_old(markers, 60, 100_001) == [(1, 99.001), (4, 60.001)]
