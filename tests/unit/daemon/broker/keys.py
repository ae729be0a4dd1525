"""Configuration from keys of broker.conf, and a namespace of one bundle, for tests of this folder."""

from __future__ import annotations

from pathlib import Path

from bkdaemon.broker.config import BrokerConfig, load_config

from tests.broker.admin import Admin

POLICIES = "persistent://public/default/__change_events"


def config_of_keys(folder: Path, **keys: object) -> BrokerConfig:
    """Read a file with these keys; assert that the broker reads all of them."""
    path = folder / "broker.conf"
    path.write_text("clusterName=c\n" + "".join(f"{key}={value}\n" for key, value in keys.items()))
    config = load_config(path)
    assert config.unknown == {}
    return config


async def one_bundle(admin: Admin) -> None:
    """Create a namespace of one bundle with four topics."""
    await admin.ok("PUT", "/admin/v2/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", "/admin/v2/namespaces/t/n", {"bundles": {"numBundles": 1}})
    for number in range(4):
        await admin.topic(f"persistent://t/n/{number}")


def config_of_text(tmp_path: Path, text: str) -> BrokerConfig:
    """Read a file of this text below the name of the cluster."""
    path = tmp_path / "broker.conf"
    path.write_text("clusterName=c\n" + text)
    return load_config(path)
