"""The README's first ten minutes, and Pulsar's side, line by line, as a newcomer types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.local import TIMEOUT_S, Local

pytestmark = pytest.mark.zookeeper

README = Path(__file__).parents[2] / "README.md"


def commands_behind(words: str) -> list[str]:
    """The lines of the first block of commands behind these words."""
    text = README.read_text(encoding="utf-8").partition(words)[2]
    found = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return [line.partition("  #")[0].strip() for line in found[1].splitlines()]


def first_ten_minutes() -> list[str]:
    """The commands under that heading, without the one that enters the virtual environment."""
    commands = commands_behind("## The first ten minutes")
    assert commands[0] == "source .venv/bin/activate"
    return commands[1:]


def typed(local: Local, line: str) -> str:
    """What a line prints; it has to succeed, with every part of its pipe."""
    environ = dict(local.environ)
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=TIMEOUT_S, env=environ
    )
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


def test_the_first_ten_minutes(tmp_path: Path) -> None:
    local = Local(tmp_path)
    said: dict[str, str] = {}
    try:
        for line in first_ten_minutes():
            consent = " --yes" if line.startswith("bkctl ledger recover") else ""  # there is no terminal to ask on
            said[line] = typed(local, line + consent)
    finally:
        subprocess.run(local.command("dev", "down", "--delete", "--yes"), env=dict(local.environ), timeout=TIMEOUT_S)
    told = "\n".join(said.values())
    assert said["bkctl ledger read 0 --from 990"].count("\n") == 11, "a head and the last ten entries"
    assert said["bkctl bookie list"].count("127.0.0.1") == 8, "four bookies, each by id and address"
    recovered = dict(line.split(maxsplit=1) for line in said["bkctl ledger recover 1"].splitlines() if " " in line)
    assert recovered["state"] == "CLOSED", told
    assert recovered["last_entry_id"] == "999", told


def test_pulsars_side(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="needs the broker's part")
    local = Local(tmp_path)
    lines = [line for line in commands_behind("Pulsar's side:") if line != "bkctl demo --broker"]  # it has its own test
    try:
        said = {line: typed(local, line) for line in lines}
    finally:
        subprocess.run(local.command("dev", "down", "--delete", "--yes"), env=dict(local.environ), timeout=TIMEOUT_S)
    assert "persistent://public/default/t" in said["bkctl topic list"]
    assert said["bkctl subscription list t"].split().count("s") == 1
    assert "yes" in said["bkctl broker health"]
