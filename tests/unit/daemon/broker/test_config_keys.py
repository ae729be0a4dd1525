"""Warnings of keys of broker.conf that the broker does not read."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.broker.config import warnings
from bkdaemon.broker.config_keys import warnings_of

from tests.unit.daemon.broker.keys import config_of_text


def test_unsupported_features_invalid_values_and_misspelled_keys_are_warnings(tmp_path: Path) -> None:
    found = config_of_text(
        tmp_path,
        "authenticationEnabled=false\nauthorizationEnabled=false\nsystemTopicEnabled=false\n"
        "managedLedgerDefaultEnsemblSize=3\nmyPluginsOwnKey=1\nbrokerServicePortTls=\ntopicLevelPoliciesEnabled=true\n"
        "advertisedListeners=out:pulsar://h:6650\nzookeeperSessionExpiredPolicy=panic\npreciseDispatcherFlowControl=1\n"
        "managedLedgerCacheEvictionWatermark=most\nmanagedLedgerStatsPeriodSeconds=0\nhttpRequestsLimitEnabled=true\n",
    )
    assert warnings(found) == [
        "advertisedListeners=out:pulsar://h:6650 is not supported: every lookup returns advertisedAddress, whatever "
        "listener the client names",
        "systemTopicEnabled=false is not supported: topic policies are supported all the same",
        "httpRequestsLimitEnabled=true is not supported: the rate of HTTP requests is not limited",
        "managedLedgerCacheEvictionWatermark=most: not a number; ignoring the key",
        "unknown key managedLedgerDefaultEnsemblSize; did you mean managedLedgerDefaultEnsembleSize?",
        "managedLedgerStatsPeriodSeconds=0: below 1; ignoring the key",
        "preciseDispatcherFlowControl=1: neither true nor false; ignoring the key",
        "zookeeperSessionExpiredPolicy=panic: not one of reconnect, shutdown; ignoring the key",
    ]


def test_usual_values_of_unsupported_keys_and_keys_of_plug_ins_are_not_warnings() -> None:
    unread = {
        "advertisedListeners": "",
        "systemTopicEnabled": "TRUE",
        "topicsPatternRegexImplementation": "RE2J_WITH_JDK_FALLBACK",
        "myPluginsOwnKey": "anything",
        "managedLedgerStatsPeriodSeconds": "60",
    }
    assert warnings_of(unread, ["clusterName"]) == []


def test_a_key_that_resembles_a_key_that_is_read_is_a_warning() -> None:
    found = warnings_of({"brokerServicePorts": "1"}, ["brokerServicePort"])
    assert found == ["unknown key brokerServicePorts; did you mean brokerServicePort?"]


def test_a_known_key_that_resembles_another_is_not_a_warning() -> None:
    assert warnings_of({"tlsEnabledWithKeyStore": "false"}, ["brokerClientTlsEnabledWithKeyStores"]) == []
