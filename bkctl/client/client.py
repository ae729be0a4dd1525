"""The client: creates, opens, lists and deletes ledgers of one cluster.

    async with await BookKeeper.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as bookkeeper:
        async with await bookkeeper.create(3, 3, 2) as writer:
            writer.append_many([b"hello", b"world"])
        reader = await bookkeeper.open(writer.ledger_id)
        async for entries in reader.read():
            ...

Opening never fences. Recovery, which does, is in bkrecovery.ledger.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from copy import copy
from dataclasses import replace

from bkctl.client.config import ClientConfig, Placement
from bkctl.client.context import ClientContext
from bkctl.client.ensembles import DefaultPlacement, EnsemblePlacement, TopologyPlacement
from bkctl.client.pool import BookiePool
from bkctl.client.racks import PULSAR_RACKS_PATH, Racks
from bkctl.client.reader import LedgerReader
from bkctl.client.writer import LedgerWriter
from bkctl.codec.checksum import Digest, digest_for
from bkctl.errors import Unauthorized, Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.store import MetadataStore
from bkctl.meta.uri import parse_uri
from bkctl.model.ids import BookieId, EntryId, LedgerId
from bkctl.model.ledger import METADATA_FORMAT_CURRENT, DigestType, Ensemble, LedgerMetadata, check_quorums
from bkctl.model.status import Status
from bkctl.world import World, real_world


class BookKeeper:
    """One client of one cluster; lives on the event loop it was made on.

    Args:
        placement: chooses bookies; by default what the configuration names.
        racks_path: where Pulsar's racks are, in the store of the ledgers.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        registry: BookieRegistry,
        world: World,
        config: ClientConfig | None = None,
        placement: EnsemblePlacement | None = None,
        *,
        racks_path: str = PULSAR_RACKS_PATH,
    ) -> None:
        config = config or ClientConfig()
        named = config.placement is not Placement.DEFAULT
        racks = Racks(ledgers.store, config.topology_script, racks_path) if named else None
        self.context = ClientContext(
            ledgers,
            registry,
            BookiePool(registry, world, config),
            placement or _placement(config, racks, world),
            racks,
            config,
            world,
        )
        self._owned: MetadataStore | None = None

    @classmethod
    async def connect(
        cls, metadata_uri: str, config: ClientConfig | None = None, world: World | None = None
    ) -> BookKeeper:
        """A client of the cluster that a metadata URI names; it closes its metadata session when it is closed.

        Raises:
            UsageError, Unavailable, NotFound: the URI, the store, or the cluster.
        """
        world = world or real_world()
        uri = parse_uri(metadata_uri)
        store = await open_store(uri)
        try:
            ledgers = await open_ledgers(store, uri.root, uri.manager, random=world.random)
        except BaseException:
            await store.close()
            raise
        client = cls(ledgers, BookieRegistry(store, uri.root), world, config)
        client._owned = store
        return client

    @property
    def ledgers(self) -> LedgerStore:
        """Ledger metadata."""
        return self.context.ledgers

    @property
    def registry(self) -> BookieRegistry:
        """Bookies as they registered."""
        return self.context.registry

    @property
    def config(self) -> ClientConfig:
        """The settings that this client was made with."""
        return self.context.config

    async def create(
        self,
        ensemble_size: int,
        write_quorum_size: int,
        ack_quorum_size: int,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        ledger_id: int | None = None,
        format_version: int = METADATA_FORMAT_CURRENT,
    ) -> LedgerWriter:
        """A new ledger, under a new id unless one is given. No bookie is asked before the first entry.

        Raises:
            UsageError: E >= Qw >= Qa >= 1 does not hold. NotEnoughBookies: too few are writable.
            AlreadyExists: the given id is taken.
        """
        check_quorums(ensemble_size, write_quorum_size, ack_quorum_size)
        bookies = await self.context.new_ensemble(ensemble_size, write_quorum_size)
        metadata = LedgerMetadata(
            ensemble_size,
            write_quorum_size,
            ack_quorum_size,
            (Ensemble(EntryId(0), bookies),),
            digest_type=digest_type,
            password=password,
            ctime_ms=self.context.world.clock.now_ms(),
            custom_metadata=dict(custom_metadata or {}),
            format_version=format_version,
        )
        new_id, version = await self.ledgers.create(metadata, ledger_id)
        return LedgerWriter(self.context, new_id, metadata, version, digest_for(digest_type, password), password)

    async def open(self, ledger_id: int, password: bytes = b"", digest_type: DigestType | None = None) -> LedgerReader:
        """Opens a ledger for reading without fencing or changing it. An open ledger may grow meanwhile.

        digest_type takes effect only for metadata that names none (format 1); None detects it there.

        Raises:
            NoSuchLedger; Unauthorized: the metadata holds another password.
            Unavailable: the ledger is open and too few bookies return its last confirmed entry, or no bookie returns an
                entry to detect the digest type from. DigestMismatch: an entry fits no digest type.
        """
        metadata, version = await self.ledgers.read(ledger_id)
        digest = await self.find_digest(metadata, ledger_id, password, digest_type)
        reader = LedgerReader(self.context, ledger_id, metadata, version, digest)
        if not metadata.closed:
            await reader.refresh()
        return reader

    async def find_digest(
        self, metadata: LedgerMetadata, ledger_id: int, password: bytes, digest_type: DigestType | None = None
    ) -> Digest:
        """The digest of a ledger, if the password is right: of the metadata's type, else the given, else the detected.

        Raises:
            Unauthorized: the metadata holds another password.
            Unavailable, DigestMismatch: nothing names the type, and no entry proves it.
        """
        if metadata.digest_type is None and digest_type is None and self.config.detect_digest:
            from bkctl.client.digest_detection import detect_digest

            digest_type = await detect_digest(self.context, ledger_id, metadata, password)
        return self.digest_of(metadata, ledger_id, password, digest_type or DigestType.CRC32C)

    def digest_of(
        self,
        metadata: LedgerMetadata,
        ledger_id: int,
        password: bytes,
        digest_type: DigestType = DigestType.CRC32C,
    ) -> Digest:
        """The digest of a ledger, if the password is right.

        Raises:
            Unauthorized: the metadata holds another password.
        """
        if metadata.password is not None and not hmac.compare_digest(metadata.password, password):
            raise Unauthorized(
                f"ledger {ledger_id} has another password", status=Status.UNAUTHORIZED, ledger_id=ledger_id
            )
        return digest_for(metadata.digest_type or digest_type, password)

    async def delete(self, ledger_id: int) -> None:
        """Removes the ledger's metadata, whatever its state; bookies collect its entries later.

        Raises:
            NoSuchLedger: it does not exist. Conflict: it is being changed.
        """
        _, version = await self.ledgers.read(ledger_id)
        await self.ledgers.delete(ledger_id, version)

    def list(self) -> AsyncIterator[list[LedgerId]]:
        """All ledger ids, ascending, in batches."""
        return self.ledgers.ids()

    async def bookie_info(self, bookie: BookieId) -> tuple[int, int]:
        """(total, free) bytes of a bookie's ledger directories.

        Raises:
            Unavailable: it does not answer.
        """
        connection = self.context.pool.connection(bookie, 3)
        reply = await connection.call(lambda c: c.info(), self.config.read_timeout_s)
        if reply.status != Status.OK:
            raise Unavailable(f"bookie {bookie} does not return its disk space", bookie=bookie, status=reply.status)
        total, free = reply.extra
        return total or 0, free or 0

    def placed(self, placement: EnsemblePlacement) -> BookKeeper:
        """The same client, on the same connections, whose new ledgers go where this placement says."""
        other = copy(self)
        other.context = replace(self.context, placement=placement)
        other._owned = None
        return other

    async def close(self) -> None:
        """Closes connections, and the metadata session where `connect` opened it. Idempotent."""
        self.context.pool.close()
        await asyncio.sleep(0)  # Pending requests of a connection are notified of its end.
        if self._owned is not None:
            store, self._owned = self._owned, None
            await store.close()

    async def __aenter__(self) -> BookKeeper:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _placement(config: ClientConfig, racks: Racks | None, world: World) -> EnsemblePlacement:
    if racks is None:
        return DefaultPlacement(world.random)
    return TopologyPlacement(
        world.random,
        racks.of,
        regions=config.placement is Placement.REGION_AWARE,
        racks_min=config.racks_min if config.enforce_racks_min else 1,
    )
