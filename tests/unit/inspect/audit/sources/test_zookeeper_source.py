"""A real ZooKeeper's files as a source of metadata: the tables are those of an export of the same tree."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.schemas import BOOKIES, CURSORS, FRAGMENTS, LEDGERS, METADATA_DAMAGE, TOPICS
from bkinspect.audit.sources import zookeeper_files, zookeeper_streams
from bkinspect.audit.sources.metadata import BookiesReader, LedgersReader, TopicsReader
from bkinspect.audit.sources.nodes import partitions, step_by_step
from kazoo.client import KazooClient

from bkctl.errors import Corrupt, NotFound
from tests.data.zookeeper import make
from tests.zookeeper_fixture import start_zookeeper

LEDGERS_MADE = 600
FILES = Path(__file__).parents[4] / "data/zookeeper"
READERS = (
    (LEDGERS, LedgersReader),
    (FRAGMENTS, LedgersReader),
    (TOPICS, TopicsReader),
    (CURSORS, TopicsReader),
    (METADATA_DAMAGE, TopicsReader),
    (BOOKIES, BookiesReader),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataDir."""
    inner = tmp_path / "data/version-2"
    inner.mkdir(parents=True)
    for path in (*FILES.glob("snapshot.*"), *FILES.glob("log.*")):
        shutil.copy(path, inner)
    return tmp_path / "data"


def rows_of(reader: Any) -> list[str]:
    return sorted(repr(row) for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist())


@pytest.mark.parametrize("parts", [1, 5])
def test_the_tables_are_those_of_an_export(folder: Path, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    export = folder / "export.jsonl"
    nodes = json.loads((FILES / "nodes.json").read_text())
    export.write_text("".join(json.dumps(node) + "\n" for node in nodes))
    size = zookeeper_files.files_of(str(folder)).size
    monkeypatch.setattr(zookeeper_files, "BYTES_A_PARTITION", size // parts)
    for table, reader in READERS:
        own = reader(table, {"metadata": str(folder)})
        assert rows_of(own) == rows_of(reader(table, {"metadata": str(export)})), table.name
    ledgers = LedgersReader(LEDGERS, {"metadata": str(folder)})
    assert len(ledgers.partitions()) == parts
    assert len(rows_of(ledgers)) == 6, "8 were made, 2 deleted"


def test_the_tree_is_what_the_server_told(folder: Path) -> None:
    nodes = json.loads((FILES / "nodes.json").read_text())
    told = {node["path"]: (node["version"], node["ctime"], node["mtime"], node["ephemeral"]) for node in nodes}
    found = zookeeper_files.tree(str(folder), lambda path: not path.startswith("/zookeeper"))
    assert {n.path: (n.version, n.ctime_ms, n.mtime_ms, n.ephemeral) for n in found} == told


def test_logs_in_a_directory_of_their_own(folder: Path, tmp_path: Path) -> None:
    both = rows_of(LedgersReader(LEDGERS, {"metadata": str(folder)}))
    logs = tmp_path / "logs/version-2"
    logs.mkdir(parents=True)
    for path in folder.glob("version-2/log.*"):
        path.rename(logs / path.name)
    without = rows_of(LedgersReader(LEDGERS, {"metadata": str(folder)}))
    assert without != both
    assert rows_of(LedgersReader(LEDGERS, {"metadata": f"{folder},{tmp_path / 'logs'}"})) == both


def test_a_snapshot_that_was_not_finished_is_passed_over(folder: Path) -> None:
    expected = rows_of(LedgersReader(LEDGERS, {"metadata": str(folder)}))
    (snapshot,) = folder.glob("version-2/snapshot.*")
    (folder / "version-2/snapshot.ffff").write_bytes(snapshot.read_bytes()[:1000])
    assert rows_of(LedgersReader(LEDGERS, {"metadata": str(folder)})) == expected


def test_damage_and_absence_are_told(folder: Path) -> None:
    (log,) = folder.glob("version-2/log.*")
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    with pytest.raises(Corrupt, match="checksum"):
        rows_of(LedgersReader(LEDGERS, {"metadata": str(folder)}))
    for path in folder.glob("version-2/*"):
        path.unlink()
    with pytest.raises(NotFound):
        zookeeper_files.files_of(str(folder))


@pytest.mark.parametrize("method", zookeeper_streams.COMPRESSED)
def test_compressed_snapshots_of_a_real_server(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.snapshot.compression.method={method}")
    server = start_zookeeper(tmp_path)
    try:
        written(server.address, range(LEDGERS_MADE))
        server.stop()
        server = start_zookeeper(tmp_path)  # it takes a snapshot of what is there
        written(server.address, range(LEDGERS_MADE, LEDGERS_MADE + 3))
        told = rows_of(LedgersReader(LEDGERS, {"metadata": f"zk+hierarchical://{server.address}/ledgers"}))
    finally:
        server.stop()
    data = tmp_path / "data"
    (snapshot,) = (path for path in data.rglob(f"snapshot.*.{method}") if path.name != f"snapshot.0.{method}")
    files = zookeeper_files.files_of(str(data))
    assert files.snapshot == snapshot
    assert (zookeeper_streams.whole_size(snapshot) or 0) > 100_000, "several blocks of snappy"
    assert len(told) == LEDGERS_MADE + 3
    assert rows_of(LedgersReader(LEDGERS, {"metadata": str(data)})) == told
    whole = snapshot.read_bytes()
    for path in data.rglob("snapshot.0*"):
        path.unlink()
    for log in sorted(data.rglob("log.*"))[:1]:
        log.unlink()  # now the tree cannot be told without the snapshot
    snapshot.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NotFound, match="no whole snapshot"):
        zookeeper_files.files_of(str(data))
    snapshot.write_bytes(whole[:200] + bytes(100) + whole[300:])
    with pytest.raises(NotFound, match="no whole snapshot"):
        zookeeper_files.files_of(str(data))


def written(address: str, numbers: range) -> None:
    """Makes closed ledgers."""
    client = KazooClient(address, timeout=60)
    client.start(timeout=60)
    try:
        client.ensure_path("/ledgers/00/0000")
        for done in [client.create_async(make.path(number), make.ledger(number)) for number in numbers]:
            done.get(timeout=60)
    finally:
        client.stop()
        client.close()


def test_later_logs_alone_are_no_tree(folder: Path, tmp_path: Path) -> None:
    for log in sorted((folder / "version-2").glob("log.*"))[:1]:
        shutil.copy(log, tmp_path / "log.65")
    with pytest.raises(NotFound, match="no whole snapshot"):
        zookeeper_files.files_of(str(tmp_path))


def test_a_directory_without_metadata_is_no_clean_cluster(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no metadata"):
        partitions(str(tmp_path), ["/ledgers"])


def test_an_interrupt_in_the_middle_of_a_step_ends_it() -> None:
    ended: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            asyncio.get_running_loop().call_soon(interrupt)
            await asyncio.sleep(3600)
        finally:
            ended.append("it")

    steps = step_by_step(source())
    assert next(steps) == 1
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert ended == ["it"]
