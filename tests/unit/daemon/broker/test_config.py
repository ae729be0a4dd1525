"""broker.conf: values that mean nothing are told with file, line and what is expected; what Java takes is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bkdaemon.broker.cluster.policies import quota_of, rules_of
from bkdaemon.broker.config import BrokerConfig, load_config, runtime, warnings

from bkctl.errors import Exit, UsageError
from bkctl.meta.documents import Json, update_document
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.keys import config_of_text

T = TopicName.parse("persistent://public/default/t")
A = "/admin/v2"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("brokerDeleteInactiveTopicsMode=sometimes", "not one of delete_when_no_subscriptions, delete_when_subscrip"),
        ("backlogQuotaDefaultRetentionPolicy=hold", "not one of producer_request_hold, producer_exception, consumer"),
        ("schemaCompatibilityStrategy=full", "not one of UNDEFINED, ALWAYS_INCOMPATIBLE, .*, FULL_TRANSITIVE"),
        ("systemTopicSchemaCompatibilityStrategy=MAYBE", "not one of UNDEFINED, "),
        ("allowAutoTopicCreationType=both", "not one of non-partitioned, partitioned"),
        ("subscriptionTypesEnabled=Exclusive,Shard", "Shard is not one of Exclusive, Shared, Failover, Key_Shared"),
        ("managedLedgerDigestType=MD5", "no digest type: CRC32C, CRC32, MAC, DUMMY"),
        ("loadBalancerEnabled=perhaps", "neither true nor false"),
        ("loadBalancerSheddingEnabled=yes", "neither true nor false"),
        ("maxMessageSize=5MB", "not a whole number from -2147483648 to 2147483647"),
        ("maxMessageSize=99999999999", "not a whole number from -2147483648 to 2147483647"),
        ("maxMessageSize=2147483647", "is above 2147473407"),
        ("maxMessageSize=1_000", "not a whole number"),
        ("backlogQuotaDefaultLimitBytes=9223372036854775808", "not a whole number from -9223372036854775808 to "),
        ("brokerServicePortTls=66510", "is not supported"),
        ("managedLedgerDefaultMarkDeleteRateLimit=nan", "not a number"),
        ("managedLedgerDefaultMarkDeleteRateLimit=-1", "is below 0"),
        ("managedLedgerMaxWriteQuorum=0", "is below 1"),
        ("loadBalancerBrokerThresholdShedderPercentage=101", "is above 100"),
        ("loadBalancerSheddingIntervalMinutes=soon", "not a whole number"),
    ],
)
def test_invalid_values_refuse_the_start_with_file_and_line(tmp_path: Path, line: str, expected: str) -> None:
    """Source: FieldParser.java, PulsarConfigurationLoader.isComplete."""
    with pytest.raises(UsageError, match=f"broker.conf:3: {line}:? .*{expected}") as told:
        config_of_text(tmp_path, f"# a comment\n{line}\n")
    assert told.value.exit == Exit.USAGE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("defaultRetentionSizeInMB=1\nbacklogQuotaDefaultLimitBytes=1048576\n", "defaultRetentionSizeInMB, 1048576 b"),
        ("defaultRetentionTimeInMinutes=1\nbacklogQuotaDefaultLimitSecond=60\n", "defaultRetentionTimeInMinutes, 60 s"),
        ("managedLedgerDefaultAckQuorum=3\n", "ack quorum"),
    ],
)
def test_contradicting_values_refuse_the_start(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=rf"broker.conf: .*{expected}"):
        config_of_text(tmp_path, text)


def test_values_and_old_keys_that_java_accepts_take_effect(tmp_path: Path) -> None:
    limits = ("brokerMaxConnections", "maxProducersPerTopic", "maxTopicsPerNamespace", "ttlDurationDefaultInSeconds")
    off = ("retentionCheckIntervalInSeconds", "subscriptionExpiryCheckIntervalInMinutes")
    found = config_of_text(
        tmp_path, "\n".join([*(f"{name}=-1" for name in (*limits, *off)), "allowAutoTopicCreation=TRUE"])
    )
    assert (found.connections_max, found.producers_max, found.topics_per_namespace_max, found.ttl_s) == (0, 0, 0, 0)
    assert (found.retention_check_s, found.expire_subscriptions_every_minutes) == (0, 0)
    assert found.ledger_settings.retention_check_s > 1e8, "ledgers are not looked at by the clock"
    found = config_of_text(
        tmp_path,
        "zookeeperServers=z:2181\nglobalZookeeperServers=z:2181\nzooKeeperSessionTimeoutMillis=7000\n"
        "managedLedgerMaxUnackedRangesToPersistInZooKeeper=17\nmanagedLedgerDigestType=MAC\nloadManagerClassName=a.B\n"
        "encryptionRequireOnProducer=true\nbacklogQuotaDefaultLimitGB=0.5\nbacklogQuotaDefaultLimitBytes=9\n",
    )
    assert found.unknown == {"loadManagerClassName": "a.B"}
    assert (found.session_timeout_s, found.ledger_settings.ranges_in_node_max) == (7, 17)
    assert quota_of(found, {}).size == 1 << 29, "the old key wins"
    assert rules_of(found, {}, T).encryption_required
    assert found.pulsar_place.hosts == ("z:2181",)
    assert runtime(found)["backlogQuotaDefaultLimitGB"] == "0.5"


def test_the_configuration_store_of_old_keys_is_read(tmp_path: Path) -> None:
    found = config_of_text(tmp_path, "zookeeperServers=z:2181\nconfigurationStoreServers=elsewhere:2181\n")
    with pytest.raises(UsageError, match="elsewhere"):
        _ = found.pulsar_place


def test_keys_of_protection_that_is_not_supported_refuse_the_start(tmp_path: Path) -> None:
    text = "authenticationEnabled=true\nbookkeeper_tlsProviderFactoryClass=x\ntokenSecretKey=data:,hidden\n"
    with pytest.raises(UsageError) as error:
        config_of_text(tmp_path, text)
    for line, key in enumerate(("authenticationEnabled", "bookkeeper_tlsProviderFactoryClass", "tokenSecretKey"), 2):
        assert f"broker.conf:{line}: {key}=" in error.value.message
    assert "hidden" not in error.value.message


def test_the_override_warns_of_each_key_of_protection_and_ignores_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "authenticationEnabled=true\nbookkeeper_tlsProviderFactoryClass=x\ntokenSecretKey=data:,hidden\n"
    found = config_of_text(tmp_path, f"{text}bkctlAllowInsecure=true\nexposePublisherStats=true\n")
    assert found.unknown == {"exposePublisherStats": "true"}
    assert warnings(found) == []
    records = [(r.levelname, r.getMessage().split("=")[0].rpartition(" ")[2]) for r in caplog.records]
    keys = ("authenticationEnabled", "bookkeeper_tlsProviderFactoryClass", "tokenSecretKey")
    assert records == [("WARNING", key) for key in keys]
    assert "hidden" not in caplog.text


def test_the_runtime_configuration_has_known_keys_only_and_masks_secrets(tmp_path: Path) -> None:
    secrets = "managedLedgerPassword=hunter2\nmyToken=hunter3\nbrokerClientAuthenticationParameters=token:hunter4\n"
    found = runtime(config_of_text(tmp_path, f"{secrets}exposePublisherStats=true\nbkctlAllowInsecure=true\n"))
    assert "hunter" not in str(found)
    assert found["managedLedgerPassword"] == "*****"
    assert (found["brokerServicePort"], found["subscriptionKeySharedEnable"]) == ("6650", "true")
    assert not found.keys() & {"myToken", "exposePublisherStats", "bkctlAllowInsecure"}


def test_requests_for_the_configuration_get_no_secret() -> None:
    async def scenario(admin: Admin) -> None:
        secrets: Json = {"brokerClientAuthenticationParameters": "token:hunter2", "maxTenants": "7"}
        await update_document(admin.service.store, "/admin/configuration", lambda old: secrets)
        admin.service.config = replace(admin.service.config, ledger_password="hunter3", unknown={"x": "hunter4"})
        answers = [await admin.ok("GET", f"{A}/brokers/configuration/{part}") for part in ("runtime", "values")]
        assert "hunter" not in str(answers)
        assert answers[0]["brokerServicePort"] == str(admin.service.config.broker_port)
        assert answers[1] == {"brokerClientAuthenticationParameters": "*****", "maxTenants": "7"}

    administering(scenario)


def test_how_many_tenants_namespaces_and_partitions_there_may_be() -> None:
    async def scenario(admin: Admin) -> None:
        count = len(await admin.ok("GET", f"{A}/tenants"))
        for name, most in (("maxTenants", count + 1), ("maxNamespacesPerTenant", 1), ("maxNumPartitionsPerPartit", 3)):
            name = name.replace("PerPartit", "PerPartitionedTopic")
            await admin.ok("POST", f"{A}/brokers/configuration/{name}/{most}")
        tenant = {"adminRoles": [], "allowedClusters": [admin.service.config.cluster]}
        await admin.ok("PUT", f"{A}/tenants/one", tenant)
        answer = await admin.ask("PUT", f"{A}/tenants/two", tenant)
        assert (answer.status, answer.body["reason"]) == (412, "Exceed the maximum number of tenants")
        for name in ("a", "b"):  # one more than the key says, as Java counts
            await admin.ok("PUT", f"{A}/namespaces/one/{name}")
        answer = await admin.ask("PUT", f"{A}/namespaces/one/c")
        assert (answer.status, answer.body["reason"]) == (412, "Exceed the maximum number of namespace in tenant :one")
        topic = f"{A}/persistent/one/a/t/partitions"
        answer = await admin.ask("PUT", topic, 4)
        assert (answer.status, answer.body["reason"]) == (406, "Number of partitions should be less than or equal to 3")
        await admin.ok("PUT", topic, 2)
        answer = await admin.ask("POST", topic, 4)
        most = "Desired partitions 4 can't be greater than the maximum partitions per topic 3."
        assert (answer.status, answer.body["reason"]) == (422, most)

    administering(scenario)


def test_broker_conf_is_read_and_invalid_values_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# a comment\nclusterName=lab\nmetadataStoreUrl=zk:h1:2181,h2:2181\nmanagedLedgerMaxEntriesPerLedger=50\n"
        "managedLedgerMinLedgerRolloverTimeMinutes=0\nexposePublisherStats=true\nbrokerServicePort=\n"
    )
    config = load_config(path)
    assert config.store_uri == "zk+hierarchical://h1:2181;h2:2181/ledgers"
    assert config.unknown == {"exposePublisherStats": "true"}
    assert (config.broker_port, config.ledger_settings.entries_max, config.ledger_settings.rollover_min_s) == (
        6650,
        50,
        0,
    )
    assert runtime(config)["managedLedgerMaxEntriesPerLedger"] == "50"
    assert "exposePublisherStats" not in runtime(config)
    path.write_text("clusterName=lab\nwebServicePort=abc\n")
    with pytest.raises(UsageError, match=r":2: webServicePort=abc"):
        load_config(path)
    path.write_text("clusterName=lab\nbrokerServicePort=99999\n")
    with pytest.raises(UsageError, match=r":2: brokerServicePort=99999: not a port"):
        load_config(path)
    with pytest.raises(UsageError, match="clusterName"):
        BrokerConfig()
    with pytest.raises(UsageError, match="ack quorum"):
        BrokerConfig(cluster="lab", ack_quorum=3)


def test_defaults_are_those_of_a_running_java_broker() -> None:
    """As the document of the formats tells them from GET /admin/v2/brokers/configuration/runtime."""
    told = runtime(BrokerConfig(cluster="lab"))
    wanted = {
        "managedLedgerMaxEntriesPerLedger": "50000",
        "managedLedgerMaxSizePerLedgerMbytes": "2048",
        "managedLedgerDigestType": "CRC32C",
        "managedLedgerMinLedgerRolloverTimeMinutes": "10",
        "managedLedgerMaxLedgerRolloverTimeMinutes": "240",
        "managedLedgerCursorRolloverTimeInSeconds": "14400",
        "retentionCheckIntervalInSeconds": "120",
        "brokerDeduplicationEnabled": "false",
        "maxMessageSize": "5242880",
        "maxUnackedMessagesPerConsumer": "50000",
    }
    assert {key: told[key] for key in wanted} == wanted
