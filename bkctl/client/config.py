"""The settings of a client, under BookKeeper's own key names where they come from a file.

    key of the file                      field                     unit there
    useV2WireProtocol                    version                   true: 2, false: 3
    nettyMaxFrameSizeBytes               frame_size_max            bytes
    numChannelsPerBookie                 channels_per_bookie
    clientConnectTimeoutMillis           connect_timeout_s         ms
    readTimeout                          add_timeout_s and read_timeout_s, where those are not set
    addEntryTimeoutSec                   add_timeout_s             s
    readEntryTimeoutSec                  read_timeout_s            s
    addEntryQuorumTimeoutSec             quorum_timeout_s          s, -1: off
    speculativeReadTimeout,
    firstSpeculativeReadTimeout          speculative_read_s        ms, 0: off
    explicitLacInterval                  explicit_lac_s            ms, 0: off
    delayEnsembleChange                  delay_ensemble_change
    batchReadEnabled                     batch_read
    recoveryReadBatchSize                recovery_read_ahead
    enableDigestTypeAutodetection        detect_digest
    bookieQuarantineTimeSeconds          quarantine_s              s
    ensemblePlacementPolicy              placement                 Java class: the part before "EnsemblePlacementPolicy"
    networkTopologyScriptFileName        topology_script
    minNumRacksPerWriteQuorum            racks_min
    enforceMinNumRacksPerWriteQuorum     enforce_racks_min

Defaults are Java's. Other keys are ignored, but for those that protect connections and are not supported: they are
refused (bkctl.model.security_keys). Source: ClientConfiguration.java.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from bkctl.codec.wire import FRAME_SIZE_MAX
from bkctl.errors import UsageError
from bkctl.model.security_keys import BOOKKEEPER_CLIENT, check_security

ADD_HEADROOM: Final = 256
"""Of a request to add an entry: the bytes of its frame besides the entry, in either version of the protocol."""

logger = logging.getLogger(__name__)


@unique
class Placement(StrEnum):
    """How the bookies of an ensemble are chosen."""

    DEFAULT = "default"
    RACK_AWARE = "rackaware"
    REGION_AWARE = "regionaware"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of a client; times in seconds, 0 means off where the field says so.

    version is the wire protocol of adds and reads; the operations that only v3 has go over a second connection.
    window_entries_max and window_bytes_max bound what a writer has on its way.
    read_ahead_entries_max bounds what one sequential read has asked for and not yet handed out.
    """

    version: int = 3
    frame_size_max: int = FRAME_SIZE_MAX
    channels_per_bookie: int = 1
    connect_timeout_s: float = 10.0
    add_timeout_s: float = 5.0
    read_timeout_s: float = 5.0
    quorum_timeout_s: float = 0.0  # 0: off
    speculative_read_s: float = 2.0  # 0: off
    explicit_lac_s: float = 0.0  # 0: off
    delay_ensemble_change: bool = False
    batch_read: bool = True
    recovery_read_ahead: int = 32
    detect_digest: bool = True
    quarantine_s: float = 1800.0
    placement: Placement = Placement.RACK_AWARE
    topology_script: str | None = None
    racks_min: int = 2
    enforce_racks_min: bool = False
    window_entries_max: int = 10_000
    window_bytes_max: int = 128 * 1024 * 1024
    read_ahead_entries_max: int = 4_000

    def __post_init__(self) -> None:
        if self.version not in (2, 3):
            raise UsageError(f"wire protocol version {self.version} does not exist", hint="2 or 3")
        for name in ("channels_per_bookie", "window_entries_max", "window_bytes_max", "read_ahead_entries_max"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1")

    @property
    def entry_size_max(self) -> int:
        """Bytes of the longest entry with its digest: a longer one makes bookies end the connection, each in turn."""
        return self.frame_size_max - ADD_HEADROOM

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> ClientConfig:
        """The settings in a BookKeeper configuration; keys that are missing keep their default.

        Raises:
            UsageError: a value is invalid for its key; keys that request unsupported protection.
        """
        check_security(conf, BOOKKEEPER_CLIENT, warn=logger.warning)
        reader = _Reader(conf)
        default = cls()
        read_timeout_s = reader.number("readTimeout", default.read_timeout_s)
        first_speculative = reader.number("speculativeReadTimeout", default.speculative_read_s, 1000)
        return cls(
            version=2 if reader.flag("useV2WireProtocol", False) else 3,
            frame_size_max=int(reader.number("nettyMaxFrameSizeBytes", default.frame_size_max)),
            channels_per_bookie=int(reader.number("numChannelsPerBookie", default.channels_per_bookie)),
            connect_timeout_s=reader.number("clientConnectTimeoutMillis", default.connect_timeout_s, 1000),
            add_timeout_s=reader.number("addEntryTimeoutSec", read_timeout_s),
            read_timeout_s=reader.number("readEntryTimeoutSec", read_timeout_s),
            quorum_timeout_s=max(0.0, reader.number("addEntryQuorumTimeoutSec", default.quorum_timeout_s)),
            speculative_read_s=reader.number("firstSpeculativeReadTimeout", first_speculative, 1000),
            explicit_lac_s=reader.number("explicitLacInterval", default.explicit_lac_s, 1000),
            delay_ensemble_change=reader.flag("delayEnsembleChange", default.delay_ensemble_change),
            batch_read=reader.flag("batchReadEnabled", default.batch_read),
            recovery_read_ahead=int(reader.number("recoveryReadBatchSize", default.recovery_read_ahead)),
            detect_digest=reader.flag("enableDigestTypeAutodetection", default.detect_digest),
            quarantine_s=reader.number("bookieQuarantineTimeSeconds", default.quarantine_s),
            placement=reader.placement(default.placement),
            topology_script=conf.get("networkTopologyScriptFileName", "").strip() or None,
            racks_min=int(reader.number("minNumRacksPerWriteQuorum", default.racks_min)),
            enforce_racks_min=reader.flag("enforceMinNumRacksPerWriteQuorum", default.enforce_racks_min),
        )


class _Reader:
    """Typed values of a configuration, with the key in every complaint."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = conf

    def number(self, key: str, default: float, per_unit: int = 1) -> float:
        text = self._conf.get(key, "").strip()
        if not text:
            return default
        try:
            return float(text) / per_unit
        except ValueError:
            raise UsageError(f"{key} = {text!r} is not a number") from None

    def flag(self, key: str, default: bool) -> bool:
        text = self._conf.get(key, "").strip().lower()
        if text not in ("", "true", "false"):
            raise UsageError(f"{key} = {text!r} is neither true nor false")
        return text == "true" if text else default

    def placement(self, default: Placement) -> Placement:
        text = self._conf.get("ensemblePlacementPolicy", "").strip()
        if not text:
            return default
        name = text.rpartition(".")[2].removesuffix("EnsemblePlacementPolicy").lower()
        try:
            return Placement(name)
        except ValueError:
            known = ", ".join(Placement)
            raise UsageError(f"ensemblePlacementPolicy = {text!r} is not supported", hint=known) from None
