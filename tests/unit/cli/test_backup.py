"""Backups of metadata: private files, complete or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.cli.backup import Backup, new_backup
from bkctl.errors import AlreadyExists, Corrupt, TornTail
from bkctl.meta.store import Node, Stat, Version

HEADER = {"root": "/ledgers", "instance_id": "i"}
NODE = Node(bytes(range(256)), Stat(Version(3), 1, 2, 0, 0, 0))


def write(path: Path, count: int = 2) -> Path:
    with new_backup(path, HEADER) as writer:
        for number in range(count):
            writer.add(f"/ledgers/L{number:010}", NODE)
    return path


def test_nodes_are_read_back_byte_for_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "a.jsonl")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    saved = Backup(path)
    assert (saved.root, saved.instance_id) == ("/ledgers", "i")
    nodes = list(saved.nodes())
    assert [(node.path, node.data) for node in nodes] == [(f"/ledgers/L{n:010}", NODE.data) for n in range(2)]
    assert saved.node_at(nodes[1].offset) == nodes[1]


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    before = path.read_bytes()
    with pytest.raises(AlreadyExists):
        write(path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        write(link)
    assert path.read_bytes() == before


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with new_backup(tmp_path / "a.jsonl", HEADER) as writer:
            writer.add("/x", NODE)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_backup_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(TornTail, match="its last line"):
        list(Backup(path).nodes())
    path.write_bytes(b"".join((lines[0], lines[1], lines[3])))
    with pytest.raises(Corrupt, match="after 2 nodes"):
        list(Backup(path).nodes())


def test_damaged_data_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"AAEC', b'"AAED', 1))
    with pytest.raises(Corrupt, match="CRC-32"):
        list(Backup(path).nodes())


@pytest.mark.parametrize("text", ["", "{}", "[1]", "x", '{"backup": "bkctl metadata", "format": 2, "root": "/l"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(Corrupt):
        Backup(path)
