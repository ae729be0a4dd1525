"""Java's own `pulsar-client` against our broker: produce, consume by type and by pattern, read."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.interop.broker_cluster import BrokerProcess, bookies
from tests.interop.java_broker import FETCH_TIMEOUT_S, LIBRARY, PULSARREF
from tests.interop.java_cluster import require_java

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

TOOL_TIMEOUT_S = 240
TOPIC = "persistent://public/default/from-java"


class Tool:
    """`pulsar-client`, with our broker's address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *words: str) -> list[str]:
        """Runs it; the contents of the messages it got."""
        command = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "--url", self._url, "client", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return re.findall(r"content:(.*)", done.stdout)


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    require_java()
    LIBRARY.mkdir(parents=True, exist_ok=True)
    with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "fetch"]
        subprocess.run(fetch, check=True, timeout=FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL)
    with bookies(tmp_path_factory.mktemp("broker")) as uri:
        broker = BrokerProcess(uri, tmp_path_factory.mktemp("log") / "broker.log")
        yield Tool(broker.url)
        broker.stop()


def test_java_produces_and_every_way_of_consuming_gets_it(tool: Tool) -> None:
    tool("produce", TOPIC, "-m", "one,two,three", "-k", "key1", "-p", "a=1")
    start = ("-n", "3", "-p", "Earliest")
    for kind in ("Exclusive", "Key_Shared"):
        assert tool("consume", TOPIC, "-s", f"s-{kind}", "-t", kind, *start) == ["one", "two", "three"]
    assert tool("read", TOPIC, "-n", "2", "-m", "earliest") == ["one", "two"]
    pattern = "persistent://public/default/from-.*"
    assert tool("consume", pattern, "--regex", "-s", "pattern", *start) == ["one", "two", "three"]
