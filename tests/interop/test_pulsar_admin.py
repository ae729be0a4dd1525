"""Java's own pulsar-admin (4.0.8) against our broker: some hundred commands, in two runs of `pulsar-shell`.

The shell runs the very commands of pulsar-admin, but starts Java once for all of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_broker_process import Brokers
from tests.interop.java_broker import FETCH_TIMEOUT_S, LIBRARY, PULSARREF
from tests.interop.java_cluster import require_java

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")

TOOL_TIMEOUT_S = 400
SCHEMA = {
    "type": "JSON",
    "schema": '{"type":"record","name":"U","fields":[{"name":"a","type":"string"}]}',
    "properties": {},
}
WORSE = SCHEMA | {"schema": '{"type":"record","name":"U","fields":[{"name":"b","type":"int"}]}'}


def dispatch(messages: int, period_s: int) -> dict[str, Any]:
    """A rate as pulsar-admin prints it, where bytes were not given."""
    rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": -1}
    return rate | {"relativeToPublishRate": False, "ratePeriodInSecond": period_s}


ISOLATION = "--namespaces t1/n --primary b --auto-failover-policy-type min_available"
LIMITS = "--auto-failover-policy-params min_limit=1,usage_threshold=80"
ACROSS: list[tuple[str, Any]] = [
    ("clusters get lab", "brokerServiceUrl"),
    ("clusters create far --url http://b:8080 --broker-url pulsar://b:6650", ""),
    ("clusters create far --url http://b:8080", "Cluster already exists"),
    ("clusters list", {"lab", "far"}),
    ("clusters update-peer-clusters far --peer-clusters lab", ""),
    ("clusters get-peer-clusters far", "lab"),
    ("clusters delete far", ""),
    ("clusters get far", "Cluster does not exist"),
    ("clusters list-failure-domains lab", ""),
    ("ns-isolation-policy list lab", "does not exist"),
    (f"ns-isolation-policy set lab p {ISOLATION} {LIMITS}", ""),
    ("ns-isolation-policy get lab p", r'"min_limit" : "1"'),
    ("ns-isolation-policy broker lab --broker b", r'"policyName" : "p"'),
    ("ns-isolation-policy brokers lab", r'"primary" : false'),
    ("ns-isolation-policy delete lab p", ""),
    ("ns-isolation-policy list lab", ""),
    ("clusters create-failure-domain lab --domain-name d --broker-list b1,b2", "bundles by failure domains"),
    ("clusters get-failure-domain lab --domain-name d", "does not exist"),
    ("resource-quotas get", r'"msgRateIn" : 40\.0'),
    ("resource-quotas get -n t1/n -b 0x80000000_0xffffffff", r'"memory" : 80\.0'),
    ("resource-quotas get -n t1/n -b 0x90000000_0xffffffff", "Invalid lower boundary"),
    (
        "resource-quotas set -n t1/n -b 0x80000000_0xffffffff -mi 1 -mo 1 -bi 1 -bo 1 -mem 7",
        "does not use resource quotas",
    ),
    ("resourcegroups get g", "ResourceGroup does not exist"),
    ("resourcegroups create g --msg-publish-rate 10", "does not enforce resource groups"),
    ("namespaces set-resource-group t1/n -rgn g", "does not enforce resource groups"),
    ("namespaces clear-backlog t1/n --force", ""),
    ("namespaces unsubscribe t1/n -s none", ""),
    ("namespaces set-anti-affinity-group t1/n -g g", "does not place bundles by anti-affinity groups"),
    ("namespaces set-dispatcher-pause-on-ack-state-persistent t1/n", ""),
    ("namespaces get-dispatcher-pause-on-ack-state-persistent t1/n", "true"),
    ("namespaces remove-dispatcher-pause-on-ack-state-persistent t1/n", ""),
    ("namespaces get-dispatcher-pause-on-ack-state-persistent t1/n", "false"),
    ("namespaces grant-permission t1/n --role r --actions produce", "This broker has no authorization"),
    ("namespaces permissions t1/n", ""),
    ("namespaces set-replicator-dispatch-rate t1/n -md 5", "replicatorDispatchRate is not enforced"),
    ("namespaces set-allowed-clusters t1/n -c lab", "does not replicate"),
    ("namespaces set-subscription-auth-mode t1/n -m Prefix", "subscriptionAuthMode is not enforced"),
    ("namespaces get-subscription-auth-mode t1/n", "None"),
    ("namespaces set-clusters t1/n -c lab", ""),
    ("namespaces set-clusters t1/n -c nowhere", "Invalid cluster id: nowhere"),
    ("namespaces set-compaction-threshold t1/n -t 1M", ""),
    ("namespaces get-compaction-threshold t1/n", "1048576"),
    ("namespaces remove-compaction-threshold t1/n", ""),
    ("broker-stats mbeans", "no MBeans"),
    ("broker-stats allocator-stats default", "no Netty allocators"),
    ("functions list --tenant public --namespace default", "runs no functions"),
    ("tenants delete t1 -f", "allow forced deletion of tenants"),
]
"""What is about clusters, quotas, whole namespaces and the broker; and what this broker says it has not."""


class Shell:
    """pulsar-shell with our broker's address."""

    def __init__(self, web: str, home: Path) -> None:
        self.web = web
        self._home = home

    def __call__(self, commands: list[str]) -> list[str]:
        """Runs `admin …` for each; what each printed, in their order."""
        conf, script = self._home / "client.conf", self._home / "commands.txt"
        conf.write_text(f"webServiceUrl=http://{self.web}\nbrokerServiceUrl=pulsar://127.0.0.1:1\n")
        script.write_text("".join(f"admin {command}\n" for command in commands))
        words = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "classpath", "tools"]
        classes = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        java = ["java", *os.environ.get("JAVAREF_JVM", "").split()]
        java += ["-Xmx256m", f"-Duser.home={self._home}", "-Droot.level=error", "-cp", classes]
        java += ["org.apache.pulsar.shell.PulsarShell", "-c", str(conf), "-f", str(script), "--no-progress"]
        done = subprocess.run(
            java, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )
        parts = re.split(r"^\[\d+/\d+\] Executing .*$", done.stdout, flags=re.MULTILINE)[1:]
        assert len(parts) == len(commands), done.stdout[-3000:]
        parts[-1] = parts[-1].replace("Goodbye!", "")
        return [part.strip() for part in parts]

    def expect(self, table: list[tuple[str, Any]]) -> None:
        """Runs all commands and compares: "" nothing, a regular expression, JSON that must be equal, a set of lines."""
        answers = zip(table, self([command for command, _ in table]), strict=True)
        wrong = [f"{command}: {told}" for (command, wanted), told in answers if not _fits(wanted, told)]
        assert wrong == []


def _fits(wanted: Any, told: str) -> bool:
    if isinstance(wanted, set):
        return set(told.split("\n")) == wanted
    if wanted == "":
        return told == "" or "uccess" in told
    if isinstance(wanted, str):
        return re.search(wanted, told, re.DOTALL) is not None
    try:
        return bool(json.loads(told) == wanted)
    except ValueError:
        return False


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    require_java()
    LIBRARY.mkdir(parents=True, exist_ok=True)
    with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "fetch"]
        subprocess.run(fetch, check=True, timeout=FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL)
    brokers = Brokers(tmp_path_factory.mktemp("admin"))
    try:
        yield Shell(brokers.start(), tmp_path_factory.mktemp("shell"))
    finally:
        brokers.down()


def test_tenants_namespaces_policies_brokers_and_bookies(shell: Shell) -> None:
    (bookie,) = re.findall(r'"bookieId" : "([^"]+)"', shell(["bookies list-bookies"])[0])[:1]
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
    persistence = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
    affinity = {"bookkeeperAffinityGroupPrimary": "g1", "bookkeeperAffinityGroupSecondary": "g2"}
    halves = ["0x00000000", "0x80000000", "0xffffffff"]
    shell.expect(
        [
            ("clusters list", "lab"),
            ("tenants create t1", ""),
            ("tenants list", {"public", "pulsar", "t1"}),
            ("tenants get t1", {"adminRoles": [], "allowedClusters": ["lab"]}),
            ("tenants create t1", "already exist"),
            ("namespaces create t1/n --bundles 2", ""),
            ("namespaces list t1", "t1/n"),
            ("namespaces list nobody", "Tenant not found"),
            ("namespaces bundles t1/n", {"boundaries": halves, "numBundles": 2}),
            ("namespaces split-bundle t1/n -b 0x00000000_0x80000000 -u", ""),
            ("namespaces bundles t1/n", "0x40000000"),
            ("namespaces unload t1/n -b 0x80000000_0xffffffff", ""),
            ("namespaces unload t1/n", ""),
            ("namespaces set-retention t1/n --time 60m --size 10M", ""),
            ("namespaces get-retention t1/n", retention),
            ("namespaces remove-retention t1/n", ""),
            ("namespaces get-retention t1/n", "null"),
            ("namespaces set-message-ttl t1/n -ttl 100", ""),
            ("namespaces get-message-ttl t1/n", 100),
            ("namespaces set-persistence t1/n -e 2 -w 2 -a 1 -r 0.5", ""),
            ("namespaces get-persistence t1/n", persistence | {"managedLedgerMaxMarkDeleteRate": 0.5}),
            ("namespaces set-backlog-quota t1/n -l 10M -p producer_exception", ""),
            ("namespaces get-backlog-quotas t1/n", "10485760.*producer_exception"),
            ("namespaces set-deduplication t1/n -e", ""),
            ("namespaces get-deduplication t1/n", "true"),
            ("namespaces set-schema-compatibility-strategy t1/n -c BACKWARD", ""),
            ("namespaces get-schema-compatibility-strategy t1/n", "BACKWARD"),
            ("namespaces set-bookie-affinity-group t1/n --primary-group g1 --secondary-group g2", ""),
            ("namespaces get-bookie-affinity-group t1/n", affinity),
            ("namespaces delete-bookie-affinity-group t1/n", ""),
            ("namespaces set-inactive-topic-policies t1/n -e -t 5m -m delete_when_subscriptions_caught_up", ""),
            ("namespaces get-inactive-topic-policies t1/n", r'"maxInactiveDurationSeconds" : 300'),
            ("namespaces set-subscription-expiration-time t1/n -t 30", ""),
            ("namespaces get-subscription-expiration-time t1/n", 30),
            ("namespaces set-max-topics-per-namespace t1/n -t 9", ""),
            ("namespaces policies t1/n", r'"message_ttl_in_seconds" : 100'),
            ("namespaces set-publish-rate t1/n -m 100 -b 200", ""),
            (
                "namespaces get-publish-rate t1/n",
                {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 200},
            ),
            ("namespaces remove-publish-rate t1/n", ""),
            ("namespaces get-publish-rate t1/n", "null"),
            ("namespaces set-dispatch-rate t1/n -md 100 -dt 2", ""),
            ("namespaces get-dispatch-rate t1/n", dispatch(100, 2)),
            ("namespaces set-subscription-dispatch-rate t1/n -md 50", ""),
            ("namespaces get-subscription-dispatch-rate t1/n", dispatch(50, 1)),
            ("namespaces set-subscribe-rate t1/n -sr 3 -st 60", ""),
            (
                "namespaces get-subscribe-rate t1/n",
                {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 60},
            ),
            ("namespaces topics t1/n", ""),
            *ACROSS,
            ("namespaces delete t1/n", ""),
            ("tenants delete t1", ""),
            ("brokers list lab", shell.web),
            ("brokers healthcheck", "ok"),
            ("brokers leader-broker", shell.web),
            ("brokers version", r"4\.0\.7"),
            ("brokers get-runtime-config", "managedLedgerMaxEntriesPerLedger"),
            ("brokers get-internal-config", "metadataStoreUrl"),
            ("brokers list-dynamic-config", "maxPublishRatePerTopicInMessages"),
            ("brokers update-dynamic-config -c maxTopicsPerNamespace -v 900", ""),
            ("brokers get-all-dynamic-config", "maxTopicsPerNamespace.*900"),
            ("brokers get-runtime-config", "maxTopicsPerNamespace.*900"),
            ("brokers update-dynamic-config -c maxTopicsPerNamespace -v many", "Invalid dynamic-config value"),
            ("brokers update-dynamic-config -c clusterName -v x", "Can't update non-dynamic configuration"),
            ("brokers delete-dynamic-config -c maxTopicsPerNamespace", ""),
            ("brokers backlog-quota-check", "ok"),
            ("namespaces permissions public/default", ""),
            (f"bookies set-bookie-rack -b {bookie} -g g1 -r /east --hostname h", ""),
            (f"bookies get-bookie-rack -b {bookie}", r'"?/east'),
            ("bookies racks-placement", r"g1.*/east"),
            (f"bookies delete-bookie-rack -b {bookie}", ""),
            (f"bookies get-bookie-rack -b {bookie}", "not found"),
        ]
    )


def test_topics_subscriptions_messages_and_schemas(shell: Shell, tmp_path: Path) -> None:
    (url,) = re.findall(r"pulsar://\S+", shell(["topics lookup persistent://public/default/x"])[0])
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe("x", "s").close()
    producer = client.create_producer("x", batching_enabled=False)
    ids = [producer.send(b"m%d" % i, properties={"n": str(i)}) for i in range(10)]
    client.close()
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(SCHEMA))
    bad.write_text(json.dumps(WORSE))
    first, x = ids[0], "persistent://public/default/x"
    shell.expect(
        [
            ("topics list public/default", x),
            (f"topics create {x}", "already exists"),
            (f"topics stats {x}", r'"msgBacklog" : 10'),
            (f"topics stats-internal {x}", r'"numberOfEntries" : 10'),
            (f"topics info-internal {x}", r'"cursors"'),
            (f"topics subscriptions {x}", {"s"}),
            (f"topics create-subscription {x} -s t -m earliest", ""),
            (f"topics subscriptions {x}", {"s", "t"}),
            (f"topics peek-messages {x} -n 2 -s s", r"m0.*m1"),
            (f"topics get-message-by-id {x} -l {first.ledger_id()} -e {first.entry_id()}", "m0"),
            (f"topics examine-messages {x} -i latest -m 1", "m9"),
            (f"topics last-message-id {x}", r'"entryId" : 9'),
            (f"topics skip {x} -n 3 -s s", ""),
            (f"topics analyze-backlog {x} -s s", r'"entries" : 7'),
            (f"topics reset-cursor {x} -s s -t 1h", ""),
            (f"topics analyze-backlog {x} -s s", r'"entries" : 10'),
            (f"topics reset-cursor {x} -s s -m {first.ledger_id()}:4", ""),
            (f"topics stats {x}", r'"msgBacklog" : 6'),
            (f"topics clear-backlog {x} -s s", ""),
            (f"topics stats {x}", r'"msgBacklog" : 0'),
            (f"topics expire-messages {x} -s t -t 3600", ""),
            (f"topics unsubscribe {x} -s t", ""),
            (f"topics subscriptions {x}", {"s"}),
            (f"topics bundle-range {x}", "0x"),
            (f"topics lookup {x}", re.escape(url)),
            (f"topicPolicies set-retention {x} -t 60m -s 10M", ""),
            (f"topicPolicies get-retention {x}", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}),
            (f"topicPolicies remove-retention {x}", ""),
            (f"topicPolicies get-retention {x}", "null"),
            (f"topicPolicies set-publish-rate {x} -m 100 -b 200", ""),
            (
                f"topicPolicies get-publish-rate {x}",
                {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 200},
            ),
            (f"topicPolicies set-dispatch-rate {x} -md 100 -dt 2", ""),
            (f"topicPolicies get-dispatch-rate {x}", dispatch(100, 2)),
            (f"topicPolicies set-subscription-dispatch-rate {x} -s s -md 50", ""),
            (f"topicPolicies get-subscription-dispatch-rate {x} -s s", dispatch(50, 1)),
            (f"topicPolicies remove-dispatch-rate {x}", ""),
            (f"topicPolicies get-dispatch-rate {x}", "null"),
            (f"topicPolicies set-deduplication-snapshot-interval {x} -i 60", ""),
            (f"topicPolicies get-deduplication-snapshot-interval {x}", 60),
            (f"topicPolicies set-max-message-size {x} -m 5242881", "must be smaller than that in the broker-level"),
            (f"topicPolicies set-max-message-size {x} -m 5242880", ""),
            (f"topicPolicies get-max-message-size {x}", "5242880"),
            (f"topicPolicies remove-max-message-size {x}", ""),
            (f"topicPolicies set-dispatcher-pause-on-ack-state-persistent {x}", ""),
            (f"topicPolicies remove-dispatcher-pause-on-ack-state-persistent {x}", ""),
            (f"topics get-replicated-subscription-status {x} -s s", "false"),
            ("namespaces clear-backlog public/default --force", ""),
            (f"topics stats {x}", r'"msgBacklog" : 0'),
            (f"topicPolicies set-compaction-threshold {x} -t 5M", ""),
            (f"topicPolicies get-compaction-threshold {x}", "5242880"),
            (f"topicPolicies remove-compaction-threshold {x}", ""),
            (f"topics compact {x}", "compaction requested"),
            (f"topics compaction-status -w {x}", "success"),
            (f"topics unload {x}", ""),
            (f"topics truncate {x}", ""),
            (f"topics terminate {x}", "terminated at"),
            (f"topics delete {x}", ""),
            (f"topics stats {x}", "not found"),
            ("topics create-partitioned-topic persistent://public/default/p -p 2", ""),
            ("topics update-partitioned-topic persistent://public/default/p -p 3", ""),
            ("topics get-partitioned-topic-metadata persistent://public/default/p", r'"partitions" : 3'),
            ("topics list-partitioned-topics public/default", "persistent://public/default/p"),
            ("topics create-subscription persistent://public/default/p -s s", ""),
            ("topics create-missed-partitions persistent://public/default/p", ""),
            ("topics partitioned-stats persistent://public/default/p --per-partition", "p-partition-2"),
            ("topics partitioned-lookup persistent://public/default/p", r"p-partition-1\s+pulsar://"),
            ("topics clear-backlog persistent://public/default/p -s s", ""),
            ("topics unload persistent://public/default/p", ""),
            ("topics delete-partitioned-topic persistent://public/default/p", ""),
            (f"schemas upload {x} -f {good}", ""),
            (f"schemas get {x}", r'"version" ?: ?0'),
            (f"schemas compatibility {x} -f {good}", ""),
            (f"schemas upload {x} -f {bad}", "(?i)schema|conflict|409"),
            (f"schemas get {x} --version 0", r'"name" ?: ?"U"'),
            (f"schemas delete {x}", ""),
            (f"schemas get {x}", "not found"),
        ]
    )


def test_the_tool_itself(shell: Shell) -> None:
    """And what of it takes the shell's output away."""
    words = [sys.executable, str(PULSARREF), "--home", str(LIBRARY), "--web", f"http://{shell.web}", "admin"]
    for command, wanted in (
        (("brokers", "list", "lab"), shell.web),
        (("broker-stats", "monitoring-metrics"), "brk_ml"),
    ):
        done = subprocess.run([*words, *command], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        assert (done.returncode, wanted in done.stdout) == (0, True), done.stdout[-1000:] + done.stderr[-2000:]
