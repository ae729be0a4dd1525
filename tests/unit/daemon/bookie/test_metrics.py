"""The metrics of a bookie, by Java's names."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.bookie.metrics import bookie_samples
from bkdaemon.prometheus import Sample, render

from tests.unit.daemon.bookie.services import config_at, new_cluster, serving
from tests.unit.daemon.bookie.world import OTHER_KEY, Calls


async def test_adds_reads_and_flushes_are_counted_and_the_status_follows_the_mode(tmp_path: Path) -> None:
    async with serving(await new_cluster(), config_at(tmp_path)) as service:
        calls = Calls(service.bookie)
        await calls.add(5, range(3))
        await calls.add(5, [3], key=OTHER_KEY)
        await service.bookie.flush()
        await calls.read(5, 0)
        service.set_manual_read_only("a test")
        service.samples_beside.append(lambda: iter([Sample("beside", "gauge", 7)]))
        lines = render(bookie_samples(service)).splitlines()
        journal, ledgers = service.config.journal_dirs[0], service.config.ledger_dirs[0]
        for line in (
            "bookie_SERVER_STATUS 0",
            'bkctl_bookie_read_only_reason{kind="manual"} 1',
            'bookkeeper_server_ADD_ENTRY_count{success="true"} 3',
            'bookkeeper_server_ADD_ENTRY_count{success="false"} 1',
            "bookie_read_from_disk_count 1",
            "bookie_read_queue_size 0",
            "bookie_ledgers_count 1",
            "bookie_write_cache_size 0",
            "bookie_flush_count 1",
            f'bookie_journal_JOURNAL_MEMORY_USED{{journal_dir="{journal}"}} 0',
            "bookie_gc_cycles_total 0",
            "bookie_MINOR_COMPACTION_TOTAL 0",
            "bookkeeper_server_CONNECTIONS 0",
            "beside 7",
        ):
            assert line in lines
        usage = next(line for line in lines if line.startswith(f'bookie_ledger_dir_usage{{dir="{ledgers}"}} '))
        assert 0 < float(usage.split()[1]) < 100
        service.registered = False
        assert "bookie_SERVER_STATUS -1" in render(bookie_samples(service)).splitlines()
