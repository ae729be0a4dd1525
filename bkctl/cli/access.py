"""The access of a command to a cluster: metadata store, registries and ledger client, opened when used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from bkctl.client.client import BookKeeper
    from bkctl.meta.bookies import BookieRegistry
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.meta.store import MetadataStore
    from bkctl.meta.uri import MetadataUri

StoreOpener: TypeAlias = "Callable[[str, float], Awaitable[MetadataStore]]"

EXPLICIT_LAC_S: Final = 0.5
"""Delay until readers see the last entry, if the configuration does not set it."""


class AccessEnv(Protocol):
    """The part of a command's environment that opening a cluster needs; `bkctl.cli.env.Env` implements it."""

    store_opener: StoreOpener | None

    @property
    def conf_path(self) -> Path | None:
        """The properties file of -c, or None."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of the properties file; empty without one."""

    @property
    def metadata_uri(self) -> str:
        """The URI of the metadata."""

    @property
    def connect_timeout_s(self) -> float:
        """The time limit for the first answer of the store, in seconds."""

    @property
    def may_write(self) -> bool:
        """Whether this command may change anything."""

    def setting(self, name: str) -> str | None:
        """A setting by its name."""

    def warn(self, text: str) -> None:
        """Prints a warning."""

    def check_may_write(self, what: str) -> None:
        """Raises an error unless this command may change something."""


class ClusterAccess:
    """One session with a cluster.

    Args:
        env: decides whether this command may change data; the store checks it before each change.
        uri: where the metadata is.
        store: the guarded store.
    """

    def __init__(self, env: AccessEnv, uri: MetadataUri, store: MetadataStore) -> None:
        self.env = env
        self.uri = uri
        self.store = store

    @property
    def root(self) -> str:
        """The ledgers root."""
        return self.uri.root

    async def ledgers(self) -> LedgerStore:
        """The ledgers, laid out as the cluster's LAYOUT says.

        Raises:
            NotFound: no cluster exists at this root. UsageError: the URI asks for another ledger manager.
        """
        from bkctl.meta.layout import open_ledgers

        return await open_ledgers(self.store, self.root, self.uri.manager, write=self.env.may_write)

    async def pulsar_path(self) -> str:
        """The root path of Pulsar's metadata: BKCTL_PULSAR_PATH, the profile's setting, or the path found.

        A ledgers root /pulsar/ledgers has them beside it if there are clusters in /pulsar/admin; else they are at "/".
        """
        from bkctl.meta.pulsar_cluster import CLUSTERS
        from bkctl.meta.store import check_path, parent_of

        given = self.env.setting("pulsar-path")
        if given:
            return check_path(given)
        beside = parent_of(self.root)
        found = beside != "/" and await self.store.exists(beside + CLUSTERS) is not None
        return beside if found else "/"

    async def pulsar(self) -> MetadataStore:
        """Pulsar's metadata, as its brokers see them.

        Raises:
            UsageError: BKCTL_PULSAR_PATH is not a path.
        """
        from bkctl.meta.below import below

        return below(self.store, await self.pulsar_path())

    @property
    def bookies(self) -> BookieRegistry:
        """The registered bookies."""
        from bkctl.meta.bookies import BookieRegistry

        return BookieRegistry(self.store, self.root)

    @asynccontextmanager
    async def bookkeeper(self) -> AsyncIterator[BookKeeper]:
        """The ledger client on this session, with the client settings of the configuration file."""
        from dataclasses import replace

        from bkctl.client.client import BookKeeper
        from bkctl.client.config import ClientConfig
        from bkctl.client.racks import PULSAR_RACKS_PATH
        from bkctl.world import real_world

        config = ClientConfig.of(self.env.properties)
        if not config.explicit_lac_s:  # A reader may follow entries that are typed by a person.
            config = replace(config, explicit_lac_s=EXPLICIT_LAC_S)
        racks_path = (await self.pulsar_path()).rstrip("/") + PULSAR_RACKS_PATH
        client = BookKeeper(await self.ledgers(), self.bookies, real_world(), config, racks_path=racks_path)
        try:
            yield client
        finally:
            await client.close()


def check_conf(env: AccessEnv) -> None:
    """Refuses a command if the configuration file requests a security setting that is not supported.

    Raises:
        UsageError: it does; the message names the keys.
    """
    from bkctl.model.security_keys import BOOKKEEPER_CLIENT, check_security

    conf = {name.removeprefix("BK_"): value for name, value in env.properties.items()}  # a bkenv.sh has the prefix
    check_security(conf, BOOKKEEPER_CLIENT, warn=env.warn, where=lambda _: f"{env.conf_path}: ")


@asynccontextmanager
async def open_cluster(env: AccessEnv) -> AsyncIterator[ClusterAccess]:
    """Opens the metadata store that the Env's settings name.

    Raises:
        UsageError: no URI, or a bad one; the configuration asks for protection which is not supported.
        Unavailable: the store does not answer in time.
    """
    from bkctl.meta.guard import GuardedStore
    from bkctl.meta.uri import parse_uri

    check_conf(env)
    text = env.metadata_uri
    uri = parse_uri(text)
    if env.store_opener is not None:
        store = await env.store_opener(text, env.connect_timeout_s)
    else:
        from bkctl.meta.connect import open_store

        store = await open_store(text, timeout_s=env.connect_timeout_s)
    try:
        yield ClusterAccess(env, uri, GuardedStore(store, env.check_may_write))
    finally:
        await store.close()
