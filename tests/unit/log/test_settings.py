"""The settings of a log: defaults against Pulsar's broker.conf, and their use for new ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.errors import NotEnoughBookies, Unauthorized
from bkctl.log.settings import FOR_EVER, LedgerSettings
from bkctl.model.ledger import DigestType
from tests.unit.log.logs import EAGER, Broker, filled, on_brokers, payloads, read_all

BROKER_CONF = """
    managedLedgerDefaultEnsembleSize=2 managedLedgerDefaultWriteQuorum=2 managedLedgerDefaultAckQuorum=2
    managedLedgerMaxEntriesPerLedger=50000 managedLedgerMaxSizePerLedgerMbytes=2048
    managedLedgerMinLedgerRolloverTimeMinutes=10 managedLedgerMaxLedgerRolloverTimeMinutes=240
    managedLedgerCursorMaxEntriesPerLedger=50000 managedLedgerCursorRolloverTimeInSeconds=14400
    managedLedgerDefaultMarkDeleteRateLimit=1.0
    managedLedgerMaxUnackedRangesToPersist=10000 managedLedgerMaxUnackedRangesToPersistInMetadataStore=1000
    defaultRetentionTimeInMinutes=0 defaultRetentionSizeInMB=0 retentionCheckIntervalInSeconds=120
"""
"""Lines of Pulsar's broker.conf."""


def test_defaults_are_those_of_pulsars_broker_conf() -> None:
    conf = {key: float(value) for key, _, value in (pair.partition("=") for pair in BROKER_CONF.split())}
    found = LedgerSettings()
    assert list(conf.values()) == [
        found.ensemble_size,
        found.write_quorum_size,
        found.ack_quorum_size,
        found.entries_max,
        found.size_max_bytes / 2**20,
        found.rollover_min_s / 60,
        found.rollover_max_s / 60,
        found.cursor_entries_max,
        found.cursor_age_max_s,
        found.mark_delete_rate,
        found.ranges_max,
        found.ranges_in_node_max,
        found.retention_s / 60,
        found.retention_bytes / 2**20,
        found.retention_check_s,
    ]
    assert (found.digest_type, found.password, found.skip_lost) == (DigestType.CRC32C, b"", False)
    assert FOR_EVER == -1


@pytest.mark.parametrize("digest_type", [DigestType.HMAC, DigestType.CRC32])
def test_new_ledgers_have_the_quorums_digest_and_password_of_the_settings(digest_type: DigestType) -> None:
    settings = replace(
        EAGER, ensemble_size=4, write_quorum_size=3, ack_quorum_size=2, digest_type=digest_type, password=b"secret"
    )

    async def scenario(broker: Broker) -> None:
        log = await filled(broker, settings, 15)
        bookkeeper = broker.context.bookkeeper
        for ledger_id in log.ledgers.ids:
            metadata, _ = await bookkeeper.ledgers.read(ledger_id)
            sizes = metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
            assert (sizes, metadata.digest_type, metadata.password) == ((4, 3, 2), digest_type, b"secret")
        assert await read_all(log) == payloads(15)
        with pytest.raises(Unauthorized):
            await bookkeeper.open(log.ledgers.ids[0], b"other", digest_type)
        await log.close()

    on_brokers(scenario)


def test_a_log_with_more_bookies_than_the_cluster_has_cannot_be_opened() -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(NotEnoughBookies):
            await broker.open(replace(EAGER, ensemble_size=5, write_quorum_size=5))

    on_brokers(scenario)
