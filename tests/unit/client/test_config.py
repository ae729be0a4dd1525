"""The client's settings from a BookKeeper configuration: keys of protection that is not supported."""

from __future__ import annotations

import pytest

from bkctl.client.config import ClientConfig
from bkctl.errors import (
    Exit,
    UsageError,
)


def test_a_client_refuses_keys_of_protection_that_is_not_supported() -> None:
    for key, text in (("tlsProviderFactoryClass", "x.Y"), ("clientKeyStore", "/k"), ("zkEnableSecurity", "true")):
        with pytest.raises(UsageError, match=f"{key}=.* is not supported") as error:
            ClientConfig.of({"readTimeout": "3", key: text})
        assert error.value.exit == Exit.USAGE


def test_a_client_of_a_bookies_file_ignores_keys_that_protect_the_bookie_alone() -> None:
    assert ClientConfig.of({"bookieAuthProviderFactoryClass": "x.Y", "httpServerTlsEnable": "true"}) == ClientConfig()


def test_the_override_warns_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig.of({"tlsKeyStore": "/k", "readTimeout": "3", "bkctlAllowInsecure": "true"})
    assert config.read_timeout_s == 3
    assert [(r.levelname, "tlsKeyStore=" in r.getMessage()) for r in caplog.records] == [("WARNING", True)]


def test_a_configuration_is_read_from_the_keys_of_bookkeeper() -> None:
    config = ClientConfig.of(
        {
            "useV2WireProtocol": "true",
            "readTimeout": "7",
            "addEntryTimeoutSec": "3",
            "speculativeReadTimeout": "250",
            "explicitLacInterval": "100",
            "ensemblePlacementPolicy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy",
            "somethingElse": "x",
        }
    )
    assert (config.version, config.add_timeout_s, config.read_timeout_s) == (2, 3.0, 7.0)
    assert (config.speculative_read_s, config.explicit_lac_s, config.placement) == (0.25, 0.1, "regionaware")
    assert ClientConfig.of({}) == ClientConfig()
    for wrong in ({"readTimeout": "soon"}, {"useV2WireProtocol": "2"}, {"ensemblePlacementPolicy": "a.B"}):
        with pytest.raises(UsageError):
            ClientConfig.of(wrong)
