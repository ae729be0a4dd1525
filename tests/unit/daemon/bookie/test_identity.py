"""Locks, cookies and instance ids: a bookie starts only on directories that are its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.bookie import identity
from bkdaemon.bookie.config import BookieConfig

from bkctl.codec.data_dir import CURRENT, encode_cookie
from bkctl.errors import Refused
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import format_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId
from bkctl.world import real_world
from tests.golden import Golden
from tests.unit.daemon.bookie.golden_bookies import INSTANCE, config_of
from tests.unit.daemon.bookie.services import ID, ROOT, config_at, new_cluster, serving


async def test_a_second_bookie_on_the_same_directories_is_refused(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        with pytest.raises(Refused, match="another bookie runs"):
            async with serving(tree, replace(config, bookie_id_text="bookie-2")):
                pass
    async with serving(tree, config):
        pass


async def test_directories_of_another_cluster_are_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    async with serving(await new_cluster(), config):
        pass
    with pytest.raises(Refused, match="instance id"):
        async with serving(await new_cluster(), config):
            pass


async def test_another_bookie_id_or_other_directories_are_refused(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        pass

    async def refused(why: str, other: BookieConfig) -> None:
        with pytest.raises(Refused, match=why):
            async with serving(tree, other):
                pass

    await refused("bookie id", replace(config, bookie_id_text="bookie-2"))
    added = replace(
        config,
        ledger_dirs=(*config.ledger_dirs, str(tmp_path / "more")),
        index_directories=(*config.index_directories, str(tmp_path / "more-index")),
    )
    await refused("ledger directories", added)
    await refused("ledger directories", replace(added, allow_storage_expansion=True))
    (tmp_path / "ledgers/current/VERSION").rename(tmp_path / "kept")
    await refused("data is missing", config)
    (tmp_path / "kept").rename(tmp_path / "ledgers/current/VERSION")
    async with serving(tree, config):
        pass
    await format_cluster(MemoryStore(tree), ROOT)
    await refused("instance id", config)


async def test_directories_with_data_and_without_a_cookie_are_refused(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    (tmp_path / "ledgers/current").mkdir(parents=True)
    (tmp_path / "ledgers/current/0.log").write_bytes(b"x")
    with pytest.raises(Refused, match="not empty"):
        async with serving(tree, config):
            pass
    (tmp_path / "old").mkdir()
    (tmp_path / "old/0.log").write_bytes(b"x")
    with pytest.raises(Refused, match="before version 3"):
        async with serving(tree, replace(config, ledger_dirs=(str(tmp_path / "old"),))):
            pass


async def test_an_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        pass
    store = MemoryStore(tree)
    registry = BookieRegistry(store, ROOT)
    await registry.delete_cookie(ID, (await registry.cookie(ID))[1])
    with pytest.raises(Refused, match="cluster has none"):
        async with serving(tree, config):
            pass
    for directory in identity.directories(config):
        for path in (Path(directory) / "current").rglob("*"):
            if path.is_file() and path.name != "VERSION":
                path.unlink()
        for path in (Path(directory) / "current").iterdir():
            if path.is_dir():
                path.rmdir()
    async with serving(tree, config):
        assert (await registry.cookie(ID))[0].bookie_id == ID


async def test_a_cookie_of_java_is_accepted_if_its_directories_are_configured(golden: Golden, tmp_path: Path) -> None:
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
