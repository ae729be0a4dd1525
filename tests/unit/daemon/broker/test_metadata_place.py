"""Where broker.conf says that Pulsar's and BookKeeper's metadata are, by Java's rules."""

from __future__ import annotations

import pytest
from bkdaemon.broker.config import BrokerConfig

from bkctl.errors import UsageError

ZK = "zk+hierarchical://h1:2181;h2:2181"


@pytest.mark.parametrize(
    ("pulsar", "books", "path", "uri"),
    [
        ("zk:h1:2181,h2:2181", "", "", f"{ZK}/ledgers"),
        ("zk:h1:2181,h2:2181/", "", "", f"{ZK}/ledgers"),
        ("h1,h2", "", "", f"{ZK}/ledgers"),
        ("zk:h1:2181,h2:2181/pulsar", "", "/pulsar", f"{ZK}/pulsar/ledgers"),
        ("metadata-store:zk:h1:2181,h2:2181/a/b", "", "/a/b", f"{ZK}/a/b/ledgers"),
        ("zk:h1:2181,h2:2181/pulsar", "zk+null://h1:2181/ledgers", "/pulsar", "zk://h1:2181/ledgers"),
        ("zk:h1/pulsar", "zk+hierarchical://h1;h2/ledgers", "/pulsar", f"{ZK}/ledgers"),
        # Pulsar's own driver takes the path as a chroot, and its ledgers below it
        ("zk:h1/pulsar", "metadata-store:zk:h1:2181;h2:2181/x", "/pulsar", f"{ZK}/x/ledgers"),
        ("zk:h1/pulsar", "metadata-store:zk:h1,h2", "/pulsar", f"{ZK}/ledgers"),
        ("", "zk://h1:2181/ledgers", "", "zk://h1:2181/ledgers"),
    ],
)
def test_places(pulsar: str, books: str, path: str, uri: str) -> None:
    config = BrokerConfig(cluster="c", metadata_store_url=pulsar, bookkeeper_uri=books)
    assert (config.pulsar_place.path, config.store_uri) == (path, uri)


def test_the_old_key() -> None:
    config = BrokerConfig(cluster="c", zookeeper_servers="h1:2181/pulsar")
    assert (config.pulsar_place.path, config.store_uri) == (
        "/pulsar",
        "zk+hierarchical://h1:2181/pulsar/ledgers",
    )


@pytest.mark.parametrize("url", ["etcd:http://h:1", "rocksdb:///tmp/x", "oxia://h:6648/ns", "zk:h1/a/", "zk:/a"])
def test_other_stores_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match=f"metadataStoreUrl={url}: only zk:host:port"):
        assert BrokerConfig(cluster="c", metadata_store_url=url).store_uri


def test_two_zookeepers_are_refused() -> None:
    config = BrokerConfig(cluster="c", metadata_store_url="zk:h1/pulsar", bookkeeper_uri="zk://h2/ledgers")
    with pytest.raises(UsageError, match="no host in common"):
        assert config.store_uri


@pytest.mark.parametrize(
    ("url", "refused"),
    [("zk:h1:2181/pulsar", False), ("zk:h2:2181,h1:2181/pulsar", False), ("zk:h1", True), ("zk:h3/pulsar", True)],
)
def test_a_configuration_store_elsewhere_is_refused(url: str, refused: bool) -> None:
    config = BrokerConfig(cluster="c", metadata_store_url="zk:h1/pulsar", configuration_store_url=url)
    if not refused:
        assert config.pulsar_place.path == "/pulsar"
        return
    with pytest.raises(UsageError, match=r"configurationMetadataStoreUrl=.*another place"):
        assert config.pulsar_place
