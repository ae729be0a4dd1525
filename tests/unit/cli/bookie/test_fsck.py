"""`bkctl bookie fsck`: its exit codes, and where it takes directories and digests from."""

from __future__ import annotations

import fcntl
from pathlib import Path

from tests.command_line import bkctl
from tests.golden import Golden


def test_a_sound_bookie(golden: Golden) -> None:
    answer = bkctl("bookie", "fsck", "--dir", golden.bookie("bookie0"), "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
    answer = bkctl("bookie", "fsck", "--dir", golden.bookie("bookie1.killed"), "-o", "json")
    assert (answer.code, [f["code"] for f in answer.json()["items"]]) == (0, ["BKC005"]), "a crash is no damage"


def test_damage(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    log = folder / "ledgers" / "current" / "0.log"
    data = log.read_bytes()
    log.write_bytes(data[:1100] + bytes([data[1100] ^ 1]) + data[1101:])
    directories = [part for kind in ("journal", "ledgers", "index") for part in ("--dir", folder / kind)]
    assert bkctl("bookie", "fsck", *directories).code == 0, "payloads are looked at with --deep"
    answer = bkctl("bookie", "fsck", *directories, "--deep", "-o", "jsonl")
    (finding,) = answer.rows()
    assert (answer.code, finding["code"], finding["file"]) == (1, "BKC107", str(log))
    assert finding["offset"] < 1100
    log.write_bytes(data[:1500])
    answer = bkctl("bookie", "fsck", *directories, "-o", "json")
    found = {f["code"]: f for f in answer.json()["items"]}
    assert (answer.code, {"BKC102", "BKC303"} <= found.keys()) == (1, True)
    assert {"expected", "found"} <= found["BKC303"]["evidence"].keys()
    assert "BKC303" in bkctl("bookie", "fsck", *directories, "-o", "table").stdout


def test_directories_of_a_configuration(golden: Golden, tmp_path: Path) -> None:
    folder = golden.unpack("several_dirs", tmp_path / "bookie")
    lists = {
        "journalDirectories": [folder / f"journal{i}" for i in range(2)],
        "ledgerDirectories": [folder / f"ledgers{i}" for i in range(3)],
        "indexDirectories": [folder / f"index{i}" for i in range(3)],
    }
    conf = tmp_path / "bk_server.conf"
    conf.write_text("".join(f"{key}={','.join(map(str, paths))}\n" for key, paths in lists.items()))
    assert bkctl("bookie", "fsck", "-c", conf).code == 0
    (folder / "index1" / "current" / "VERSION").unlink()
    assert [f["code"] for f in bkctl("bookie", "fsck", "-c", conf, "-o", "jsonl").rows()] == ["BKC007"]


def test_what_it_refuses(golden: Golden, tmp_path: Path) -> None:
    assert bkctl("bookie", "fsck").code == 2
    assert bkctl("bookie", "fsck", "--dir", tmp_path / "none").code == 4
    assert bkctl("bookie", "fsck", "--dir", tmp_path).code == 4, "nothing of a bookie is there"
    folder = golden.unpack("bookie0", tmp_path / "bookie")
    with (folder / "ledgers" / "bkctl.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = bkctl("bookie", "fsck", "--dir", folder, "-o", "json")
        assert (answer.code, answer.error()["kind"]) == (3, "refused")
        answer = bkctl("bookie", "fsck", "--dir", folder, "--while-running", "-o", "json")
        assert (answer.code, "a bookie is running" in answer.json()["warnings"][0]) == (0, True)
