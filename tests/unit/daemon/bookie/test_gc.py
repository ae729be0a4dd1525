"""Garbage collection: only ledgers that the metadata store reports as deleted are removed, with their entry logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bkdaemon.bookie.metrics import bookie_samples
from bkdaemon.prometheus import render

from bkctl.errors import BkctlError, Refused
from bkctl.meta.cluster import format_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore
from tests.unit.daemon.bookie.services import ROOT, admin, config_at, metadata, new_cluster, serving, until
from tests.unit.daemon.bookie.world import FENCED, NO_LEDGER, Calls


async def test_deleted_ledgers_and_their_entry_logs_are_removed_and_others_stay(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, log_size_limit=20_000)
    store = MemoryStore(tree)
    ledgers = await open_ledgers(store, ROOT, write=True)
    async with serving(tree, config) as service, admin(service) as client:
        calls = Calls(service.bookie)
        for ledger_id in range(6):
            await ledgers.create(metadata(), ledger_id)
            await calls.add(ledger_id, range(5), payload=bytes(3000))
        await calls.fence(4)
        await service.bookie.flush()
        assert (await client.collect_garbage()).ledgers == 0
        logs = {p.name for p in (tmp_path / "ledgers/current").glob("*.log")}
        for ledger_id in (0, 1, 2, 4):
            await ledgers.delete(ledger_id, (await ledgers.read(ledger_id))[1])
        collected = await client.collect_garbage()
        assert collected.ledgers == 4
        left = {p.name for p in (tmp_path / "ledgers/current").glob("*.log")}
        assert collected.logs == len(logs - left) > 0
        assert collected.bytes > 0
        assert await calls.read(0, 0) == [(NO_LEDGER, None)]
        for ledger_id in (3, 5):
            assert await calls.has(ledger_id, range(5), payload=bytes(3000))
        assert await calls.add(4, [5]) == [FENCED]
        assert json.dumps(sorted(service.bookie.storage.ids())) == "[3, 5]"


async def test_a_compaction_runs_when_it_is_due(tmp_path: Path) -> None:
    config = config_at(
        tmp_path,
        log_size_limit=20_000,
        gc_wait_ms=50,
        minor_compaction_interval_s=0,
        major_compaction_interval_s=1,
        compaction_rate_by_entries=1_000_000,
    )
    tree = await new_cluster()
    ledgers = await open_ledgers(MemoryStore(tree), ROOT, write=True)
    async with serving(tree, config) as service:
        calls, compactor = Calls(service.bookie), service.garbage.compactor
        for ledger_id in (3, 4):
            await ledgers.create(metadata(), ledger_id)
        for first in range(0, 30, 10):
            await calls.add(3, range(2 * first, 2 * first + 20), payload=bytes(1000))
            await calls.add(4, range(first, first + 10), payload=bytes(1000))
            await service.bookie.flush()
        await ledgers.delete(3, (await ledgers.read(3))[1])
        await until(lambda: compactor.moved_bytes > 0 and compactor.running is None)
        assert await calls.has(4, range(30), payload=bytes(1000))
        assert compactor.counts["minor"] == 0, "switched off"
        told = render(bookie_samples(service))
        assert f"bookie_MAJOR_COMPACTION_TOTAL {compactor.counts['major']}" in told
        assert f"bookie_RECLAIMED_COMPACTION_SPACE_BYTES {compactor.reclaimed_bytes}" in told
        assert compactor.reclaimed_bytes > compactor.moved_bytes


async def test_nothing_is_collected_if_metadata_cannot_be_read_or_is_of_another_cluster(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config) as service:
        calls, store = Calls(service.bookie), service.store
        assert isinstance(store, MemoryStore)
        await calls.add(5, range(3))
        store.suspend()
        with pytest.raises(BkctlError):
            await service.garbage.collect()
        store.resume()
        await format_cluster(MemoryStore(tree), ROOT)
        with pytest.raises(Refused, match="instance"):
            await service.garbage.collect()
        assert await calls.has(5, range(3))
