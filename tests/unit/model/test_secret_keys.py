"""Which values of a configuration are shown."""

from __future__ import annotations

import pytest

from bkctl.model.secret_keys import MASK, masked


@pytest.mark.parametrize(
    "key",
    [
        "tokenSecretKey",
        "brokerClientAuthenticationParameters",
        "sslFactoryPluginParams",
        "tlsKeyStorePassword",
        "managedLedgerPassword",
        "passwd",
        "s3ManagedLedgerOffloadCredentialId",
        "TLSKEYFILEPATH",
        "my_secret",
    ],
)
def test_a_value_is_masked_if_the_key_names_a_secret_in_any_case(key: str) -> None:
    assert masked(key, "hunter2") == MASK


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("brokerServicePort", "6650"),
        ("metadataStoreUrl", "zk:h:2181"),
        ("topicCompactionRetainNullKey", "false"),
        ("subscriptionKeySharedEnable", "true"),
        ("subscriptionTypesEnabled", "Exclusive,Key_Shared"),
        ("keySharedLookAheadMsgInReplayThresholdPerConsumer", "2000"),
        ("tlsKeyFilePath", ""),
        ("keepAliveIntervalSeconds", "30"),
    ],
)
def test_a_value_is_shown_if_it_can_be_no_secret(key: str, text: str) -> None:
    assert masked(key, text) == text
