"""The settings of auto recovery, under BookKeeper's own key names and with Java's defaults.

    key                                      field                       unit in the file, meaning
    lostBookieRecoveryDelay                  lost_bookie_delay_s         s; only where the cluster has none yet
    auditorPeriodicBookieCheckInterval       bookie_check_s              s; 0: once at the start
    auditorPeriodicCheckInterval             ledger_check_s              s; <= 0: never
    auditorPeriodicPlacementPolicy-          placement_check_s           s; <= 0: never; daily, Java: never
      CheckInterval
    auditorReplicasCheckInterval             replicas_check_s            s; <= 0: never
    repairedPlacementPolicyNotAdhering-      repair_placement            ledgers that lie badly are moved
      BookieEnabled
    underreplicatedLedgerRecoveryGracePeriod recovery_grace_s            s in the queue, then it is logged; <= 0: never
    auditorLedgerVerificationPercentage      verify_percentage           entries checked between first and last
    openLedgerRereplicationGracePeriod       open_grace_s                ms; then an open ledger is fenced
    lockReleaseOfFailedLedgerGracePeriod     failure_pause_s             ms; the longest pause after a failure
    rwRereplicateBackoffMs                   retry_pause_s               ms; after a failure, before another is picked
    replicationRateByBytes                   rate_bytes_per_s            bytes/s; <= 0: no limit
    storeSystemTimeAsLedgerUnderreplicated-  mark_time                   time in markers
      MarkTime
    digestType, passwd                       digest_type, password       of ledgers whose metadata has none

Java's keys without effect are in UNUSED_KEYS, and logged when auto recovery starts with them. Pulsar's
bookkeeper.conf sets rereplicationEntryBatchSize: as a bound of entries in flight it would make every such cluster
copy at the pace of a round trip for each batch, which was not requested.
Source: ServerConfiguration.java; for operators: docs/hooks/keys/autorecovery.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bkctl.errors import UsageError
from bkctl.model.ledger import DigestType

RECOVERY_KEYS: Final = frozenset(
    (
        "lostBookieRecoveryDelay",
        "auditorPeriodicBookieCheckInterval",
        "auditorPeriodicCheckInterval",
        "auditorPeriodicPlacementPolicyCheckInterval",
        "auditorReplicasCheckInterval",
        "repairedPlacementPolicyNotAdheringBookieEnabled",
        "underreplicatedLedgerRecoveryGracePeriod",
        "auditorLedgerVerificationPercentage",
        "openLedgerRereplicationGracePeriod",
        "lockReleaseOfFailedLedgerGracePeriod",
        "rwRereplicateBackoffMs",
        "replicationRateByBytes",
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        "digestType",
        "passwd",
    )
)
"""Every key that RecoverySettings.of reads."""

UNUSED_KEYS: Final[Mapping[str, str]] = {
    "rereplicationEntryBatchSize": "requests in flight are bounded by bytes; replicationRateByBytes slows copying down",
}
"""Keys of Java's auto recovery that have no effect, and their replacements."""

_DIGESTS = {"CRC32": DigestType.CRC32, "CRC32C": DigestType.CRC32C, "MAC": DigestType.HMAC, "DUMMY": DigestType.DUMMY}


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """See the table above."""

    lost_bookie_delay_s: int = 0
    bookie_check_s: float = 86_400.0
    ledger_check_s: float = 604_800.0
    placement_check_s: float = 86_400.0
    replicas_check_s: float = 0.0
    repair_placement: bool = False
    recovery_grace_s: float = 0.0
    verify_percentage: int = 0
    open_grace_s: float = 30.0
    failure_pause_s: float = 300.0
    retry_pause_s: float = 5.0
    rate_bytes_per_s: float = -1.0
    mark_time: bool = True
    digest_type: DigestType = DigestType.CRC32
    password: bytes = b""

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> RecoverySettings:
        """The settings in a configuration; keys that are missing or empty keep their default.

        Raises:
            UsageError: a value that is not what its key needs.
        """
        default = cls()
        return cls(
            lost_bookie_delay_s=int(_number(conf, "lostBookieRecoveryDelay", default.lost_bookie_delay_s)),
            bookie_check_s=_number(conf, "auditorPeriodicBookieCheckInterval", default.bookie_check_s),
            ledger_check_s=_number(conf, "auditorPeriodicCheckInterval", default.ledger_check_s),
            placement_check_s=_number(conf, "auditorPeriodicPlacementPolicyCheckInterval", default.placement_check_s),
            replicas_check_s=_number(conf, "auditorReplicasCheckInterval", default.replicas_check_s),
            repair_placement=_flag(conf, "repairedPlacementPolicyNotAdheringBookieEnabled", default.repair_placement),
            recovery_grace_s=_number(conf, "underreplicatedLedgerRecoveryGracePeriod", default.recovery_grace_s),
            verify_percentage=int(_number(conf, "auditorLedgerVerificationPercentage", default.verify_percentage)),
            open_grace_s=_number(conf, "openLedgerRereplicationGracePeriod", default.open_grace_s * 1000) / 1000,
            failure_pause_s=_number(conf, "lockReleaseOfFailedLedgerGracePeriod", default.failure_pause_s * 1000)
            / 1000,
            retry_pause_s=_number(conf, "rwRereplicateBackoffMs", default.retry_pause_s * 1000) / 1000,
            rate_bytes_per_s=_number(conf, "replicationRateByBytes", default.rate_bytes_per_s),
            mark_time=_flag(conf, "storeSystemTimeAsLedgerUnderreplicatedMarkTime", default.mark_time),
            digest_type=_digest(conf, default.digest_type),
            password=conf.get("passwd", "").encode(),
        )


def unused(conf: Mapping[str, str]) -> list[str]:
    """A line for each key of UNUSED_KEYS that a configuration sets."""
    return [f"{key} is ignored: {why}" for key, why in UNUSED_KEYS.items() if conf.get(key, "").strip()]


def _number(conf: Mapping[str, str], key: str, default: float) -> float:
    text = conf.get(key, "").strip()
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{key} = {text!r} is not a number") from None


def _flag(conf: Mapping[str, str], key: str, default: bool) -> bool:
    text = conf.get(key, "").strip().lower()
    if text not in ("", "true", "false"):
        raise UsageError(f"{key} = {text!r} is neither true nor false")
    return text == "true" if text else default


def _digest(conf: Mapping[str, str], default: DigestType) -> DigestType:
    text = conf.get("digestType", "").strip().upper()
    if text and text not in _DIGESTS:
        raise UsageError(f"digestType = {text!r} is not one of {', '.join(_DIGESTS)}")
    return _DIGESTS[text] if text else default
