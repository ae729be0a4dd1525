"""Java's tools with our auditor running, and Java's auditor with our notes beside its nodes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.auto_recovery import RecoveryProcess, auditor, queue, wait_for
from tests.interop.java_cluster import JavaCluster, free_ports, running

pytestmark = pytest.mark.java
TIMEOUT_S = 120
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(4, "--storage", "sorted")  # Java's other storage does not list entries


@pytest.fixture(scope="module")
def ledgers(cluster: JavaCluster) -> list[int]:
    options = ("--entries=200", "--size=300", "--e=3", "--qw=2", "--qa=2", "--digest=CRC32C")
    return [int(cluster.client("write", *options)["ledger"]) for _ in range(2)]


def status(cluster: JavaCluster) -> dict[str, Any]:
    return dict(cluster.bkctl_json("autorecovery", "status"))


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def test_javas_tools_with_our_auditor(cluster: JavaCluster, ledgers: list[int]) -> None:
    port = free_ports()
    web = {"httpServerEnabled": "true", "httpServerPort": port, "httpServerHost": "127.0.0.1"}
    with RecoveryProcess(cluster, "ours", java=False, **web) as ours:
        wait_for(lambda: status(cluster)["takes_requests"], TIMEOUT_S, "our auditor")
        assert ours.bookie_id in cluster.shell("whoisauditor")
        # every check through the running auditor, against Java's bookies
        for check in ("bookies", "all", "placement", "replicas"):
            result = cluster.bkctl_json("autorecovery", "check", check, "--wait", "--yes")
            assert (result["by"], result["error"], result["findings_count"]) == (ours.bookie_id, None, 0)
        assert result["figures"] == {"ledgers": len(ledgers), "with_silent_bookies": 0}
        assert len(cluster.bkctl_json("autorecovery", "check", "--last")["items"]) == 4
        # Java's trigger and delay
        asked = ours.text.count("audit of all bookies: requested")
        cluster.shell("triggeraudit")
        wait_for(lambda: ours.text.count("audit of all bookies: requested") > asked, TIMEOUT_S, "the triggered audit")
        cluster.shell("lostbookierecoverydelay", "-set", "7")
        assert cluster.bkctl_json("autorecovery", "delay")["delay_s"] == 7
        assert re.search(r"\b7\b", cluster.shell("lostbookierecoverydelay", "-get"))
        # Java sets the times back, for the next start of an auditor
        cluster.shell("forceauditchecks", "-calc", "-ppc", "-rc")
        shown, long_ago_ms = status(cluster), time.time() * 1000 - 20 * DAY_MS
        assert all(shown[f"last_check_{name}_ms"] < long_ago_ms for name in ("all", "placement", "replicas"))
        # a pause of ours is Java's disable; a ledger that waits is in Java's lists
        cluster.bkctl_json("autorecovery", "pause", "--for", "1h", "--reason", "a test", "--yes")
        cluster.bkctl_json("autorecovery", "queue", "requeue", ledgers[0], "--yes")
        assert "disabled" in cluster.shell("autorecovery").lower()
        assert str(ledgers[0]) in cluster.shell("listunderreplicated")
        assert cluster.bkctl("autorecovery", "trigger", "--yes").returncode == 3
        cluster.shell("autorecovery", "--enable")
        wait_for(lambda: not queue(cluster), TIMEOUT_S, "the repair after Java's enable")
        assert cluster.bkctl("autorecovery", "eta").returncode == 0
        text = metrics(port)
        for name in (
            'auditor_REPLICAS_CHECK_TIME_count{success="true"} 1',
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY 0",
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED 1",
        ):
            assert f"\n{name}\n" in text
        assert ours.stop() == 0, ours.text
    assert cluster.bkctl_json("autorecovery", "workers")["items"] == []


def test_javas_auditor_and_worker_beside_our_notes(cluster: JavaCluster, ledgers: list[int]) -> None:
    cluster.bkctl_json("autorecovery", "check", "placement", "--yes")  # so that there is a result
    with RecoveryProcess(cluster, "javas", java=True) as javas:
        wait_for(lambda: auditor(cluster) == javas.bookie_id, TIMEOUT_S, "Java's auditor")
        assert not status(cluster)["takes_requests"]
        assert cluster.bkctl("autorecovery", "trigger", "--check", "all", "--yes").returncode == 3
        assert cluster.bkctl("autorecovery", "pause", "--for", "1h", "--reason", "no", "--yes").returncode == 3
        # nobody of ours is there: the command itself ends the pause, and Java's worker goes on
        command = [sys.executable, "-m", "bkctl", "-m", cluster.uri, "autorecovery", "pause", "--for", "1h"]
        with subprocess.Popen(
            [*command, "--reason", "a test", "--wait", "--yes", "-o", "json"], stdout=subprocess.PIPE
        ) as pausing:
            wait_for(lambda: not status(cluster)["enabled"], TIMEOUT_S, "the pause")
            cluster.bkctl_json("autorecovery", "queue", "requeue", *ledgers, "--yes")
            assert len(queue(cluster)) == len(ledgers)
            cluster.bkctl_json("autorecovery", "pause", "--for", "1s", "--reason", "shorter", "--wait", "--yes")
            out, _ = pausing.communicate(timeout=TIMEOUT_S)
            assert (pausing.returncode, json.loads(out)["enabled"]) == (0, True)
        wait_for(lambda: not queue(cluster), TIMEOUT_S, "Java's repair after the pause")
        # our process joins, with its notes; Java stays the auditor
        with RecoveryProcess(cluster, "ours", java=False) as ours:
            wait_for(lambda: cluster.bkctl_json("autorecovery", "workers")["items"], TIMEOUT_S, "our worker's note")
            assert auditor(cluster) == javas.bookie_id
            cluster.bkctl_json("autorecovery", "pause", "--for", "3s", "--reason", "again", "--yes")
            wait_for(lambda: status(cluster)["enabled"], TIMEOUT_S, "the end of the pause")
            assert status(cluster)["by"] == ours.bookie_id
            assert ours.stop() == 0, ours.text
        wait_for(lambda: auditor(cluster) == javas.bookie_id, TIMEOUT_S, "Java's auditor, still")
        assert javas.process.poll() is None
        assert [line for line in javas.text.splitlines() if " ERROR " in line or "/bkctl/" in line] == []
