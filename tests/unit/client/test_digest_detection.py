"""Ledgers whose metadata names no digest type (format 1): it is found from the entries, or given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from bkrecovery.explain import explain_recovery
from bkrecovery.fence import fence_ledger
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.errors import BadBytes, Unavailable
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from tests.unit.client.cluster import SimCluster, bookie_id, simulate

PAYLOADS = [b"entry %d" % i for i in range(40)]


def as_format_1(metadata: LedgerMetadata) -> LedgerMetadata:
    return replace(metadata, format_version=1, digest_type=None, password=None, ctime_ms=None, creation_token=0)


async def written(
    bookkeeper: BookKeeper, digest: DigestType, password: bytes = b"", *, count: int = 40, close: bool = True
) -> int:
    """A ledger with metadata of format 1."""
    writer = await bookkeeper.create(3, 2, 2, digest, password)
    for payload in PAYLOADS[:count]:
        writer.append(payload)
        await writer.flush()
    if close:
        await writer.close()
    metadata, version = await bookkeeper.ledgers.read(writer.ledger_id)
    await bookkeeper.ledgers.write(writer.ledger_id, as_format_1(metadata), version)
    node = await bookkeeper.ledgers.store.get(bookkeeper.ledgers.path(writer.ledger_id))
    assert decode_metadata(node.data, source="").digest_type is None
    return writer.ledger_id


async def read_all(
    bookkeeper: BookKeeper, ledger_id: int, password: bytes = b"", digest: DigestType | None = None
) -> list[bytes]:
    reader = await bookkeeper.open(ledger_id, password, digest)
    return [e.payload async for batch in reader.read() for e in batch]


@pytest.mark.parametrize("digest", DigestType)
def test_the_digest_type_is_found_from_the_first_entry(digest: DigestType) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, digest, b"pw")
        assert await read_all(bookkeeper, ledger_id, b"pw") == PAYLOADS
        assert await read_all(bookkeeper, ledger_id, b"pw", digest) == PAYLOADS

    simulate(scenario)


def test_the_first_readable_entry_of_a_later_fragment_tells_it() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(1, 1, 1, DigestType.CRC32)
        first = writer.metadata.last_ensemble.bookies[0]
        writer.append(PAYLOADS[0])
        await writer.flush()
        cluster.kill(first)
        writer.append(PAYLOADS[1])
        await writer.flush()
        await writer.close()
        metadata, version = await bookkeeper.ledgers.read(writer.ledger_id)
        assert len(metadata.ensembles) == 2
        await bookkeeper.ledgers.write(writer.ledger_id, as_format_1(metadata), version)
        reader = await bookkeeper.open(writer.ledger_id)
        assert (await reader.read_entry(1)).payload == PAYLOADS[1]

    simulate(scenario)


def test_a_wrong_password_of_a_mac_ledger_is_bad_bytes_with_the_entry() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, DigestType.HMAC, b"pw")
        with pytest.raises(BadBytes, match="digest type") as e:
            await bookkeeper.open(ledger_id)
        assert "entry 0" in str(e.value)
        assert "--digest" in str(e.value.hint)

    simulate(scenario)


def test_without_a_bookie_that_answers_the_digest_type_is_unavailable_and_may_be_given() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, DigestType.CRC32)
        for host in list(cluster.bookies):
            cluster.kill(bookie_id(host))
        with pytest.raises(Unavailable, match="digest type") as e:
            await bookkeeper.open(ledger_id)
        assert "--digest" in str(e.value.hint)
        assert (await bookkeeper.open(ledger_id, digest_type=DigestType.CRC32)).last_confirmed == 39

    simulate(scenario)


@pytest.mark.parametrize("close", [True, False])
def test_a_ledger_without_entries_opens(close: bool) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, DigestType.CRC32, count=0, close=close)
        assert (await bookkeeper.open(ledger_id)).last_confirmed == -1

    simulate(scenario)


async def recovered(bookkeeper: BookKeeper, ledger_id: int) -> int:
    return (await recover_ledger(bookkeeper, ledger_id)).last_entry_id


async def explained(bookkeeper: BookKeeper, ledger_id: int) -> int | None:
    return (await explain_recovery(bookkeeper, ledger_id)).closes_at


async def fenced(bookkeeper: BookKeeper, ledger_id: int) -> int:
    report = await fence_ledger(bookkeeper, ledger_id)
    assert report.metadata.state is LedgerState.IN_RECOVERY
    return report.last_confirmed_found + 1


@pytest.mark.parametrize("work", [recovered, explained, fenced])
def test_an_open_ledger_is_recovered_with_the_digest_type_of_its_entries(
    work: Callable[[BookKeeper, int], Awaitable[int]],
) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, DigestType.CRC32, close=False)
        assert await work(bookkeeper, ledger_id) == 39

    simulate(scenario)


def test_detection_can_be_switched_off_as_in_java() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await written(bookkeeper, DigestType.CRC32)
        with pytest.raises(BadBytes):
            await read_all(bookkeeper, ledger_id)
        assert await read_all(bookkeeper, ledger_id, digest=DigestType.CRC32) == PAYLOADS

    simulate(scenario, detect_digest=False)
