"""A real ZooKeeper's files as a source of metadata: the tables are those of an export of the same tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.schemas import BOOKIES, CURSORS, FRAGMENTS, LEDGERS, METADATA_DAMAGE, TOPICS
from bkinspect.audit.sources import zookeeper_files
from bkinspect.audit.sources.metadata import BookiesReader, LedgersReader, TopicsReader

from bkctl.errors import Corrupt, NotFound
from tests.unit.inspect.audit.sources.table_rows import rows_of

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


def test_later_logs_alone_are_no_tree(folder: Path, tmp_path: Path) -> None:
    for log in sorted((folder / "version-2").glob("log.*"))[:1]:
        shutil.copy(log, tmp_path / "log.65")
    with pytest.raises(NotFound, match="no whole snapshot"):
        zookeeper_files.files_of(str(tmp_path))
