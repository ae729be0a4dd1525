"""Compressed snapshots of a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.schemas import LEDGERS
from bkinspect.audit.sources import zookeeper_files, zookeeper_streams
from bkinspect.audit.sources.metadata import LedgersReader
from kazoo.client import KazooClient

from bkctl.errors import NotFound
from tests.data.zookeeper import make
from tests.unit.inspect.audit.sources.table_rows import rows_of
from tests.zookeeper_fixture import start_zookeeper

LEDGERS_MADE = 600


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
