"""Apache's Go client against our broker: a program that checks for itself, on our bookies.

Go fetches what go.sum knows, once a machine. Where go is missing the test is skipped by name with its reason; with
CI=true it fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.broker_cluster import BrokerProcess, bookies

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "go"
BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 300, 240
FETCHES = 3
KEYS = {"acknowledgmentAtBatchIndexLevelEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}


def require_go() -> None:
    """Skips the test with its reason; fails where CI must not skip."""
    if shutil.which("go") is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("needs go on PATH")
    pytest.skip("needs go on PATH")


def build(program: Path) -> None:
    """Builds it; what is fetched may fail, and is asked for again."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    command = ["go", "build", "-o", str(program), "."]
    for _ in range(FETCHES):
        done = subprocess.run(
            command, cwd=PROGRAM, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        if done.returncode == 0:
            return
    pytest.fail(done.stderr[-3000:])


def test_what_apache_s_go_client_does_holds(tmp_path: Path) -> None:
    require_go()
    build(tmp_path / "client")
    with bookies(tmp_path) as metadata_uri:
        broker = BrokerProcess(metadata_uri, tmp_path / "broker.log", KEYS)
        try:
            command = [str(tmp_path / "client"), broker.url, broker.web_url]
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        finally:
            broker.stop()
    checks = re.findall(r"^\t\{\"(.+)\", \w+\},$", (PROGRAM / "main.go").read_text(), re.MULTILINE)
    assert done.stdout.split("\n")[:-1] == [f"holds: {check}" for check in checks], done.stderr[-3000:]
    assert done.returncode == 0
