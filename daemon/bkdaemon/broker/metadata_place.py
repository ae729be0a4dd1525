"""Places of a broker's metadata: Pulsar's and BookKeeper's, in one ZooKeeper, each below its own path.

    metadataStoreUrl                 Pulsar's               BookKeeper's, unless configured
    zk:h1:2181,h2:2181               /                      /ledgers
    zk:h1:2181,h2:2181/pulsar        /pulsar                /pulsar/ledgers

    bookkeeperMetadataServiceUri     BookKeeper's
    zk+null://h1:2181;h2:2181/x      /x: BookKeeper's own driver takes the path as its root
    metadata-store:zk:h1:2181/x      /x/ledgers: Pulsar's driver takes it as a chroot

Source: ServiceConfiguration.java (getBookkeeperMetadataStoreUrl), AbstractMetadataDriver.java, ZKMetadataStore.java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bkctl.codec.layout import LedgerManager
from bkctl.errors import UsageError
from bkctl.meta.uri import MetadataUri, parse_uri

PULSAR_DRIVER: Final = "metadata-store:"
LEDGERS: Final = "/ledgers"


class Place(NamedTuple):
    """A path of a ZooKeeper; "" is its root."""

    hosts: tuple[str, ...]
    path: str

    def __str__(self) -> str:
        return f"zk:{','.join(self.hosts)}{self.path}"

    def beside(self, hosts: tuple[str, ...]) -> bool:
        """True if it is the same ZooKeeper: a server belongs to one ensemble only, so one common server is enough."""
        return not set(self.hosts).isdisjoint(hosts)


def place_of(key: str, text: str) -> Place:
    """Reads a metadata store's URL as Pulsar writes it: [zk:]host:port,host:port[/path].

    Raises:
        UsageError: it is not ZooKeeper, or not a valid path.
    """
    hosts, slash, path = text.removeprefix("zk://").removeprefix("zk:").partition("/")
    try:
        uri = parse_uri(f"zk://{hosts}{slash if path else ''}{path}{LEDGERS}")
    except UsageError as e:
        raise UsageError(f"{key}={text}: only zk:host:port,… with or without a /path is known", hint=e.hint) from None
    return Place(uri.hosts, uri.root.removesuffix(LEDGERS))


def ledgers_of(pulsar: Place | None, text: str) -> MetadataUri:
    """Returns the place of BookKeeper's metadata: bookkeeperMetadataServiceUri, or a path below Pulsar's.

    Raises:
        UsageError: it is not a valid URI, or another ZooKeeper than Pulsar's: a broker has one session.
    """
    if not text:
        if pulsar is None:
            raise UsageError("metadataStoreUrl is not set")
        return MetadataUri(pulsar.hosts, pulsar.path + LEDGERS, LedgerManager.HIERARCHICAL)
    rest = text.removeprefix(PULSAR_DRIVER)
    if rest != text and "://" not in rest:
        place = place_of("bookkeeperMetadataServiceUri", rest)
        found = MetadataUri(place.hosts, place.path + LEDGERS, LedgerManager.HIERARCHICAL)
    else:
        found = parse_uri(rest)
    if pulsar is not None and not pulsar.beside(found.hosts):
        raise UsageError(
            f"metadataStoreUrl={pulsar} and bookkeeperMetadataServiceUri={text} have no host in common",
            hint="both must be in one ZooKeeper, and name its hosts alike; the paths may differ",
        )
    return found


def check_configuration_store(place: Place, text: str) -> None:
    """Checks that no separate configuration store is configured, which is not supported.

    Raises:
        UsageError: configurationMetadataStoreUrl names another place.
    """
    if not text:
        return
    other = place_of("configurationMetadataStoreUrl", text)
    if other.path != place.path or not place.beside(other.hosts):
        raise UsageError(
            f"configurationMetadataStoreUrl={text} is another place than the metadata store, {place}",
            hint="a separate configuration store is not supported: remove the key or set it to metadataStoreUrl",
        )
