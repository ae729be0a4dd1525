"""Entry logs of ledgers that the index does not know: only the metadata store says whether they are deleted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie import deleted_ledgers
from bkdaemon.bookie.compaction import MAJOR, Level
from bkdaemon.bookie.service import BookieService

from bkctl.errors import Unavailable
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore
from tests.unit.daemon.bookie.services import ROOT, config_at, metadata, new_cluster, serving
from tests.unit.daemon.bookie.world import Calls

LEVEL = Level(MAJOR, 0.8, 1.0, None)
BODY = bytes(1000)


def log_names(directory: Path) -> set[str]:
    return {path.name for path in (directory / "ledgers/current").glob("*.log")}


async def written(service: BookieService, ledgers: LedgerStore, ids: range, *, logs: int = 3) -> None:
    """Every ledger in metadata, and in each of some logs."""
    for ledger_id in ids:
        await ledgers.create(metadata(), ledger_id)
    for first in range(0, logs * 10, 10):
        for ledger_id in ids:
            await Calls(service.bookie).add(ledger_id, range(first, first + 10), payload=BODY)
        await service.bookie.flush()


async def delete(ledgers: LedgerStore, *ids: int) -> None:
    for ledger_id in ids:
        await ledgers.delete(ledger_id, (await ledgers.read(ledger_id))[1])


async def lose(service: BookieService, *ids: int) -> None:
    """The index forgets ledgers that metadata has."""
    await service.bookie.delete(list(ids))


def config(directory: Path, **settings: Any) -> Any:
    return config_at(directory, log_size_limit=20_000, compaction_rate_by_entries=1_000_000, **settings)


def kept(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("keeping entry log")]


async def test_logs_of_ledgers_that_only_the_index_lost_are_kept_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        await written(service, ledgers, range(4))
        await lose(service, 0, 1, 2, 3)
        before = log_names(tmp_path)
        for _ in range(3):
            assert (await service.garbage.collect()).logs == 0
        assert log_names(tmp_path) == before
        assert len(kept(caplog)) == len(set(kept(caplog))) == service.garbage.logs.count > 2
        await delete(ledgers, 0, 1, 2)
        await service.garbage.collect()
        left = await service.garbage.logs.scan()
        assert left
        assert all(3 in log.contents.ids for log in left)
        await delete(ledgers, 3)
        assert (await service.garbage.collect()).logs == len(left)
        assert service.garbage.logs.count == 0
        assert service.garbage.deleted.kept == {}


async def test_logs_are_kept_while_the_metadata_store_does_not_answer(tmp_path: Path) -> None:
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        await written(service, ledgers, range(4))
        await lose(service, 0, 1, 2)
        await delete(ledgers, 0, 1, 2)
        before, store = log_names(tmp_path), service.store
        assert isinstance(store, MemoryStore)
        store.suspend()
        with pytest.raises(Unavailable):
            await service.garbage.collect()
        with pytest.raises(Unavailable):
            await service.garbage.compactor.run(LEVEL)
        assert log_names(tmp_path) == before
        store.resume()
        assert (await service.garbage.collect()).logs > 0
        assert await service.garbage.compactor.run(LEVEL) > 0


async def test_a_compaction_drops_no_entry_of_a_ledger_that_exists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        await written(service, ledgers, range(4))
        await lose(service, 0, 1, 2)
        before = log_names(tmp_path)
        compactor = service.garbage.compactor
        for _ in range(2):
            assert await compactor.run(LEVEL) == 0
        assert (compactor.moved_bytes, log_names(tmp_path)) == (0, before)
        assert len(kept(caplog)) == len(set(kept(caplog))) > 2
        await delete(ledgers, 0, 1, 2)
        assert await compactor.run(LEVEL) > 2
        assert await Calls(service.bookie).has(3, range(30), payload=BODY)


async def test_a_kept_log_needs_one_read_per_round(tmp_path: Path) -> None:
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        await written(service, ledgers, range(5))
        await lose(service, *range(5))
        await delete(ledgers, 0, 1, 2, 3)
        await service.garbage.collect()
        asked, kept_logs = await reads_of(service), len(service.garbage.deleted.kept)
        assert asked == kept_logs > 2


async def reads_of(service: BookieService) -> int:
    """The ledger nodes that one collection reads."""
    catalog, count = service.garbage.deleted.catalog, 0
    gone = catalog.gone

    async def counted(ledger_ids: list[int]) -> set[int]:
        nonlocal count
        count += len(ledger_ids)
        return await gone(ledger_ids)

    catalog.gone = counted  # type: ignore[method-assign]
    await service.garbage.collect()
    return count


async def test_a_round_asks_no_more_than_its_bound_and_the_next_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleted_ledgers, "ASKED_MAX", 3)
    monkeypatch.setattr(deleted_ledgers, "ASK_BATCH", 2)
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        for first in (0, 4, 8):
            await written(service, ledgers, range(first, first + 4), logs=1)
        await lose(service, *range(12))
        await delete(ledgers, *range(12))
        before, rounds = log_names(tmp_path), 0
        while closed := (await service.garbage.logs.scan()):
            rounds += 1
            assert await reads_of(service) <= 3 + 4, "the bound, and what is left of one log"
            assert len(await service.garbage.logs.scan()) < len(closed)
        assert rounds > 1
        assert len(before - log_names(tmp_path)) > 2


async def test_ledgers_that_were_collected_in_the_round_are_not_asked_for_again(tmp_path: Path) -> None:
    ledgers = await open_ledgers(MemoryStore(tree := await new_cluster()), ROOT, write=True)
    async with serving(tree, config(tmp_path)) as service:
        await written(service, ledgers, range(4))
        await delete(ledgers, *range(4))
        assert await reads_of(service) == 4
        assert service.garbage.deleted_ledgers == 4
        assert service.garbage.last is not None
        assert service.garbage.last.logs > 2


async def test_an_id_that_metadata_cannot_have_keeps_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tree = await new_cluster()
    async with serving(tree, config(tmp_path)) as service:
        for _ in range(2):
            await Calls(service.bookie).add(1, range(20), payload=BODY)
            await service.bookie.flush()
        await lose(service, 1)
        for log in await service.garbage.logs.scan():
            log.contents.ids[0] = -7
        before = log_names(tmp_path)
        assert (await service.garbage.collect()).logs == 0
        assert log_names(tmp_path) == before
        assert "ledger -7" in kept(caplog)[0]
