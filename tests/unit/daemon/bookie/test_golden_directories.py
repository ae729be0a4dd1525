"""Directories that Java's bookies left, after a clean stop and after kill -9: ours starts on them and serves all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie import identity
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import rocks_index

from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.data_dir import CURRENT, encode_cookie
from bkctl.codec.entry import decode_entry
from bkctl.errors import Refused, UsageError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.world import FENCED, NO_LEDGER, OK, Calls, config_in, running

CLEAN = ("bookie0", "bookie1", "bookie2", "bookie3", "bookie4", "direct_io", "gc_cache_transactional", "several_dirs")
INSTANCE = "7f0c2f8e-0000-4000-8000-000000000001"


def config_of(name: str, folder: Path) -> BookieConfig:
    if name != "several_dirs":
        return config_in(folder, index_directories=(str(folder / "index"),))
    return config_in(
        folder,
        journal_directories=tuple(str(folder / f"journal{n}") for n in range(2)),
        ledger_dirs=tuple(str(folder / f"ledgers{n}") for n in range(3)),
        index_directories=tuple(str(folder / f"index{n}") for n in range(3)),
    )


async def holds_all(calls: Calls, golden: Golden, name: str, *, only_if_there: bool = False) -> int:
    """Checks every entry that the manifest says is on this bookie; returns their number."""
    row = golden.bookie_row(name)
    bookie_id = row.get("id", f"127.0.0.1:{32810 + row['bookie']}")
    count = 0
    for ledger in golden.ledgers(name).values():
        if ledger.deleted:
            if name == "gc_cache_transactional":
                assert [status for status, _ in await calls.read(ledger.id, 0)] == [NO_LEDGER], "Java collected it"
            continue
        entries = [e for e in range(ledger.row["entries"]) if bookie_id in ledger.bookies_of(e)]
        digest = digest_for(ledger.digest_type, ledger.password)
        for entry_id, (status, body) in zip(entries, await calls.read(ledger.id, *entries), strict=True):
            if status != OK and (only_if_there or ledger.row["state"] != "CLOSED"):
                continue  # nobody promised that this bookie has it
            assert status == OK, f"entry {entry_id} of ledger {ledger.id}"
            assert body is not None
            found = decode_entry(body, digest, ledger.id, entry_id)
            assert found.payload == ledger.payload(entry_id)
            count += 1
    return count


@pytest.mark.parametrize("name", CLEAN)
async def test_every_entry_is_served(golden: Golden, tmp_path: Path, name: str) -> None:
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    world = real_world(1)
    async with running(config, world, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name) > 50
    async with running(config, world, rocks_index(config)) as calls:
        assert await holds_all(calls, golden, name) > 50, "after our own stop as well"


async def test_a_killed_bookie_is_replayed(golden: Golden, tmp_path: Path) -> None:
    name = "bookie1.killed"
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    assert identity.was_dirty(real_world().disk, config)
    async with running(config, real_world(1), rocks_index(config)) as calls:
        count = await holds_all(calls, golden, name, only_if_there=True)
        ids = sorted(calls.bookie.storage.ids())
        listed = {ledger_id: calls.bookie.list_entries(ledger_id)[1] for ledger_id in ids}
    assert count > 100
    assert sum(map(len, listed.values())) >= count


@pytest.mark.parametrize("name", ["bookie5", "bookie6", "log_per_ledger", "journal5_idx0"])
async def test_other_storages_are_converted_with_consent(golden: Golden, tmp_path: Path, name: str) -> None:
    folder = golden.unpack(name, tmp_path / name)
    config = config_of(name, folder)
    with pytest.raises(UsageError, match="Interleaved or Sorted"):
        async with running(replace(config, storage_class=""), real_world(1), rocks_index(config)):
            pass
    for _ in range(2):
        async with running(config, real_world(1), rocks_index(config)) as calls:
            assert await holds_all(calls, golden, name) > 50
            assert not (folder / "index/current/bkctl.importing").exists()


async def test_fences_and_keys_of_java_count(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie0")
    config = config_of("bookie0", folder)
    fenced = 0
    async with running(config, real_world(1), rocks_index(config)) as calls:
        for ledger in golden.ledgers("bookie0").values():
            held = calls.bookie.storage.ledger(ledger.id)
            if held is None:
                continue
            assert held.key == master_key(ledger.password)
            if held.fenced:
                fenced += 1
                assert await calls.add(ledger.id, [10**6], key=held.key) == [FENCED]
    assert fenced > 0


async def test_the_cookie_of_java_is_ours(golden: Golden, tmp_path: Path) -> None:
    """Java's cookies name the directories of their machine: with those of this one, they are accepted."""
    folder = golden.unpack("bookie0", tmp_path / "bookie0")
    config = replace(config_of("bookie0", folder), bookie_id_text="127.0.0.1:32810")
    disk, bookie_id = real_world().disk, BookieId("127.0.0.1:32810")
    registry = BookieRegistry(MemoryStore(MemoryTree()), "/ledgers")
    await registry.store.create("/ledgers", b"")
    with pytest.raises(Refused, match="not this bookie's"):
        await identity.check_cookies(disk, config, bookie_id, registry, INSTANCE)
    cookie = Cookie(bookie_id, config.journal_dirs, config.ledger_dirs, config.index_dirs, INSTANCE)
    for directory in identity.directories(config):
        (Path(directory) / CURRENT / "VERSION").write_bytes(encode_cookie(cookie))
    await registry.create_cookie(cookie)
    await identity.check_cookies(disk, config, bookie_id, registry, INSTANCE)
