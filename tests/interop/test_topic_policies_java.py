"""Policies of a topic that Java's broker set are held by ours, and the reverse; one broker at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.cli.topic.policy._kinds import NAMES
from tests.e2e.local import end
from tests.e2e.test_broker_process import ask
from tests.interop.auto_recovery import wait_for
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

WAIT_S = 120
EVENTS = "/admin/v2/persistent/public/default/__change_events"
TOPIC = "/admin/v2/persistent/public/default/t"
RETENTION = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
DELAYED = {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


@pytest.fixture(scope="module")
def java(cluster: JavaCluster) -> JavaBroker:
    """The cluster's Java broker; a test starts and stops it."""
    return JavaBroker(cluster)


def ttl_of(web: str, name: str = "t") -> object:
    name, mark, query = name.partition("?")
    return ask(web, "GET", f"{TOPIC[:-1]}{name}/messageTTL{mark}{query}")[1]


def compacted(web: str) -> None:
    """Compacts the policies of a namespace's topics, and lets the topic go of what was compacted."""
    assert ask(web, "PUT", f"{EVENTS}/compaction")[0] == 204
    wait_for(lambda: ask(web, "GET", f"{EVENTS}/compaction")[1]["status"] == "SUCCESS", WAIT_S, "the compaction")
    before = [one["ledgerId"] for one in ask(web, "GET", f"{EVENTS}/internalStats")[1]["ledgers"]]
    assert ask(web, "PUT", f"{EVENTS}/unload")[0] == 204  # its last ledger ends
    ask(web, "GET", f"{EVENTS}/internalStats")
    assert ask(web, "POST", f"{EVENTS}/trim")[0] in (200, 204)
    wait_for(
        lambda: before[0] not in [one["ledgerId"] for one in ask(web, "GET", f"{EVENTS}/internalStats")[1]["ledgers"]],
        WAIT_S,
        "the topic to let go of what was compacted",
    )


def our_broker(cluster: JavaCluster, home: Path) -> tuple[str, subprocess.Popen[bytes]]:
    conf = home / "broker.conf"
    conf.write_text(
        f"clusterName=lab\nmetadataStoreUrl=zk:127.0.0.1:{cluster.zookeeper_port}\nadvertisedAddress=127.0.0.1\n"
        "bindAddress=127.0.0.1\nbrokerServicePort=0\nwebServicePort=0\n"
    )
    command = [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(conf)]
    with (home / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
    assert process.stdout is not None
    word, _, web = process.stdout.readline().decode().strip().partition(" ")
    assert word == "ready", (home / "broker.log").read_text()
    return web, process


def test_each_holds_what_the_other_stored(cluster: JavaCluster, java: JavaBroker, tmp_path: Path) -> None:
    java_web = java.web_url.removeprefix("http://")
    try:
        java.up()
        assert ask(java_web, "PUT", TOPIC)[0] == 204
        assert ask(java_web, "POST", f"{TOPIC}/retention", RETENTION)[0] == 204
        assert ask(java_web, "POST", f"{TOPIC}/messageTTL?messageTTL=77")[0] == 204
        java.down()
        web, process = our_broker(cluster, tmp_path)
        try:
            assert ask(web, "GET", f"{TOPIC}/retention") == (200, RETENTION)
            assert ask(web, "GET", f"{TOPIC}/messageTTL") == (200, 77)
            assert ask(web, "POST", f"{TOPIC}/messageTTL?messageTTL=78")[0] == 204
            assert ask(web, "POST", f"{TOPIC}/delayedDelivery", {"tickTime": 500, "active": True})[0] == 204
            assert ask(web, "GET", f"{TOPIC}/messageTTL") == (200, 78)
        finally:
            code, _, _ = end(process)
        assert code == 0
        java.up()
        wait_for(
            lambda: ask(java_web, "GET", f"{TOPIC}/messageTTL") == (200, 78), WAIT_S, "our policy at Java's broker"
        )
        assert ask(java_web, "GET", f"{TOPIC}/retention") == (200, RETENTION)
        assert ask(java_web, "GET", f"{TOPIC}/delayedDelivery") == (200, DELAYED)
    finally:
        java.down(kill=True)


def test_each_finds_what_the_other_compacted(cluster: JavaCluster, java: JavaBroker, tmp_path: Path) -> None:
    """The events themselves are gone from the topic: they are in its compacted ledger alone."""
    java_web = java.web_url.removeprefix("http://")
    try:
        java.up()
        for name, seconds in (("early", 31), ("late", 32), ("late", 33)):
            ask(java_web, "PUT", f"{TOPIC[:-1]}{name}")
            assert ask(java_web, "POST", f"{TOPIC[:-1]}{name}/messageTTL?messageTTL={seconds}")[0] == 204
        wait_for(lambda: ttl_of(java_web, "late") == 33, WAIT_S, "Java's own policy")
        compacted(java_web)
        java.down()
        web, process = our_broker(cluster, tmp_path)
        try:
            assert (ttl_of(web, "early"), ttl_of(web, "late")) == (31, 33)
            assert ask(web, "POST", f"{TOPIC[:-1]}late/messageTTL?messageTTL=34")[0] == 204
            compacted(web)
            assert (ttl_of(web, "early"), ttl_of(web, "late")) == (31, 34)
        finally:
            code, _, _ = end(process)
        assert code == 0
        java.up()
        wait_for(lambda: ttl_of(java_web, "late") == 34, WAIT_S, "our policy at Java's broker")
        assert ttl_of(java_web, "early") == 31
    finally:
        java.down(kill=True)


def bkctl(cluster: JavaCluster, *words: str) -> Any:
    command = [sys.executable, "-m", "bkctl", "-m", cluster.uri, "topic", "policy", *words, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, (words, done.stderr)
    return json.loads(done.stdout)


def test_commands_set_policies_at_javas_broker_and_each_has_the_others_for_all_clusters(
    cluster: JavaCluster, java: JavaBroker, tmp_path: Path
) -> None:
    java_web, topic = java.web_url.removeprefix("http://"), "persistent://public/default/ruled"
    try:
        java.up()
        for name in ("ruled", "everywhere"):
            ask(java_web, "PUT", f"{TOPIC[:-1]}{name}")
        for name, kind in NAMES.items():
            bkctl(cluster, "set", topic, name, kind.example, "--yes")
        wait_for(lambda: ttl_of(java_web, "ruled") == int(NAMES["ttl"].example), WAIT_S, "the policy at Java's broker")
        assert ask(java_web, "POST", f"{TOPIC[:-1]}everywhere/messageTTL?messageTTL=55&isGlobal=true")[0] == 204
        java.down()
        stored = {row["policy"]: row["value"] for row in bkctl(cluster, "get", topic)["items"]}
        assert [name for name, value in stored.items() if value is None] == []
        web, process = our_broker(cluster, tmp_path)
        try:
            assert (ttl_of(web, "everywhere"), ttl_of(web, "everywhere?isGlobal=true")) == (None, 55)
            assert ask(web, "POST", f"{TOPIC[:-1]}ruled/messageTTL?messageTTL=66&isGlobal=true")[0] == 204
            assert (ttl_of(web, "ruled"), ttl_of(web, "ruled?isGlobal=true")) == (stored["ttl"], 66)
        finally:
            end(process)
        java.up()
        wait_for(
            lambda: ttl_of(java_web, "ruled?isGlobal=true") == 66, WAIT_S, "ours for all clusters at Java's broker"
        )
        assert ttl_of(java_web, "ruled") == stored["ttl"]
    finally:
        java.down(kill=True)
