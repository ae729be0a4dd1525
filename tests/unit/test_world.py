"""The real doors: files, atomic replacement, locks, workers, connections."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest

from bkctl.world import PrivateDisk, SystemDisk, SystemNetwork, ThreadWorker


def test_a_file_reads_what_was_written_at_its_place(tmp_path: Path) -> None:
    disk = SystemDisk()
    file = disk.open(tmp_path / "f", create=True)
    file.allocate(0, 4096)
    assert file.size() == 4096
    parts = [bytes([n % 251]) * 3 for n in range(3000)]  # more parts than one system call takes
    assert file.pwritev(parts, 10) == 9000
    file.pwrite(b"head", 0)
    file.sync()
    assert file.pread(9000, 10) == b"".join(parts)
    assert file.pread(100, 9005) == b"".join(parts)[8995:]
    file.truncate(4)
    file.close()
    file.close()
    assert disk.read(tmp_path / "f") == b"head"


def test_exclusive_refuses_a_file_that_exists(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.open(tmp_path / "f", create=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        disk.open(tmp_path / "f", create=True, exclusive=True)


def test_replace_leaves_one_whole_file(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.replace(tmp_path / "mark", b"one")
    disk.replace(tmp_path / "mark", b"two")
    assert disk.names(tmp_path) == ["mark"]
    assert disk.read(tmp_path / "mark") == b"two"


def test_a_private_disk_creates_what_only_the_owner_reads(tmp_path: Path) -> None:
    disk, folder = PrivateDisk(), tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        disk.make_dirs(folder)
        disk.make_dirs(folder)
        (folder / "file.new").write_bytes(b"what an interrupted write left")
        disk.replace(folder / "file", b"x")
        disk.open(folder / "open", create=True).close()
        release = disk.lock(folder / "lock")
        assert release is not None
        release()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", folder)] == [0o700] * 2
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "file": 0o600,
        "open": 0o600,
        "lock": 0o600,
    }
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        disk.make_dirs(tmp_path / "f")


def test_a_lock_is_held_once_until_released(tmp_path: Path) -> None:
    disk = SystemDisk()
    release = disk.lock(tmp_path / "lock")
    assert release is not None
    assert disk.lock(tmp_path / "lock") is None
    release()
    again = disk.lock(tmp_path / "lock")
    assert again is not None
    again()


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path, flock = SystemDisk(), tmp_path / "lock", fcntl.flock
    first = disk.lock(path)
    assert first is not None

    def overtaken(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        disk.remove(path)  # its holder goes, with the file that was opened just now
        first()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    release = disk.lock(path)
    assert release is not None
    assert disk.exists(path)
    assert disk.lock(path) is None, "two would hold it"
    release()


def test_a_worker_keeps_the_order_and_brings_errors_back() -> None:
    async def run() -> list[object]:
        worker, seen, end = ThreadWorker("test"), [], asyncio.Event()

        def done(result: object, error: BaseException | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            seen.append(result if error is None else str(error))
            if len(seen) == 3:
                end.set()

        def fail() -> None:
            raise OSError("disk gone")

        worker.submit(lambda: 1, done)
        worker.submit(fail, done)
        worker.submit(lambda: 2, done)
        await asyncio.wait_for(end.wait(), 10)
        worker.close()
        return seen

    assert asyncio.run(run()) == [1, "disk gone", 2]


def test_bytes_go_both_ways_between_a_connection_and_a_listener() -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data.upper())

    class Client(asyncio.Protocol):
        def __init__(self) -> None:
            self.answer = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            self.answer.set_result(data)

    async def run() -> bytes:
        network = SystemNetwork()
        listener = await network.listen("127.0.0.1", 0, Echo)
        transport, protocol = await network.connect("127.0.0.1", listener.port, Client)
        transport.write(b"ledger")
        assert isinstance(protocol, Client)
        answer = await asyncio.wait_for(protocol.answer, 10)
        transport.close()
        await listener.close()
        return bytes(answer)

    assert asyncio.run(run()) == b"LEDGER"
