"""Brokers in the metadata store: registrations, the leader, owners of bundles, and the counter of producer names.

    /loadbalance/brokers/host:port               ephemeral: a broker's load report; named by its web address
    /loadbalance/leader                          ephemeral: {"brokerId": …, "serviceUrl": …}
    /namespace/tenant/namespace/0x…_0x…          ephemeral: the owner of the bundle, with its addresses
    /counters/producer-name/-NNNNNNNNNN          ephemeral, sequential: one a broker

Source: LocalBrokerData.java, LeaderElectionService.java, OwnershipCache.java, DistributedIdGenerator.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from bkctl.errors import AlreadyExists, Conflict, Corrupt, NotFound, UsageError
from bkctl.meta.documents import Json, decode_json, encode_json, read_document
from bkctl.meta.store import MetadataStore
from bkctl.model.bundle import Bundle, parse_range

BROKERS: Final = "/loadbalance/brokers"
LEADER: Final = "/loadbalance/leader"
OWNERS: Final = "/namespace"
PRODUCER_NAMES: Final = "/counters/producer-name/-"
ADDRESSES: Final = ("webServiceUrl", "webServiceUrlTls", "pulsarServiceUrl", "pulsarServiceUrlTls")
"""The fields that identify the broker of a load report, as in Java."""
EXTENSIBLE: Final = "ExtensibleLoadManagerImpl"
CREATE_ROUNDS_MAX: Final = 3
"""Times a node is found taken and free again."""


class Owner(NamedTuple):
    """The owner of a bundle, from its node; disabled: it is being unloaded."""

    native_url: str | None
    http_url: str | None
    disabled: bool
    session_id: int

    @property
    def broker_id(self) -> str:
        """host:port of the web address, as brokers are listed."""
        return (self.http_url or self.native_url or "").partition("://")[2]


OWNER_KEYS: Final = ("nativeUrl", "httpUrl", "disabled")


def owner_value(native_url: str, http_url: str, *, disabled: bool = False) -> Json:
    """The node of a bundle's owner."""
    return {"nativeUrl": native_url, "httpUrl": http_url, "disabled": disabled, "advertisedListeners": {}}


class BrokerStore:
    """The registered brokers, and the owners of bundles.

    A node of another session with the content that this broker would write is its own node from before it was killed:
    it is replaced at once, because no other broker has that address. This happens once per session for each node: if
    another broker has the address, the two do not replace each other's node forever.
    """

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._replaced: dict[str, int] = {}  # path → session that has replaced it

    # -- brokers ----------------------------------------------------------------------------------------------------

    async def brokers(self) -> list[str]:
        """The registered brokers, by their web address, sorted."""
        try:
            return await self.store.children(BROKERS)
        except NotFound:
            return []

    async def report(self, broker_id: str) -> Json | None:
        """A broker's load report, None where it is not registered."""
        found = await read_document(self.store, f"{BROKERS}/{broker_id}")
        return None if found is None else found.value

    async def spokesman(self) -> Owner | None:
        """A broker that knows the owners if these nodes do not contain them, and redirects to the owner.

        Java's ExtensibleLoadManagerImpl keeps owners in a topic. None where brokers keep them here.
        """
        for broker_id in await self.brokers():
            report = await self.report(broker_id) or {}
            if str(report.get("loadManagerClassName", "")).endswith(EXTENSIBLE):
                return Owner(None, report.get("webServiceUrl"), False, 0)
        return None

    async def register(self, broker_id: str, report: Json) -> bool:
        """Registers a broker in this session; False where another session has its name."""
        return await self._create_ephemeral(
            f"{BROKERS}/{broker_id}",
            report,
            lambda there: _addresses(there) == _addresses(report) != {},
        )

    async def update_report(self, broker_id: str, report: Json) -> None:
        """Replaces the load report; no other process writes it."""
        await self.store.overwrite(f"{BROKERS}/{broker_id}", encode_json(report))

    async def unregister(self, broker_id: str) -> None:
        """Deletes the registration of this session, if it exists."""
        await self._delete_own(f"{BROKERS}/{broker_id}")

    # -- the leader -------------------------------------------------------------------------------------------------

    async def leader(self) -> Json | None:
        """The leader, or None."""
        found = await read_document(self.store, LEADER)
        return None if found is None or not found.value else found.value

    async def try_to_lead(self, broker_id: str, service_url: str) -> bool:
        """True if this session leads now."""
        value = {"brokerId": broker_id, "serviceUrl": service_url}
        return await self._create_ephemeral(LEADER, value, lambda there: there == value)

    async def resign(self) -> None:
        """Resigns the leadership; no error if it did not lead."""
        await self._delete_own(LEADER)

    # -- bundles ----------------------------------------------------------------------------------------------------

    def path(self, bundle: Bundle) -> str:
        """The path of the node that names the owner of a bundle."""
        return f"{OWNERS}/{bundle}"

    async def owner(self, bundle: Bundle) -> Owner | None:
        """The owner of a bundle, or None."""
        path = self.path(bundle)
        try:
            node = await self.store.get(path)
        except NotFound:
            return None
        value = decode_json(node.data, source=path)
        return Owner(
            value.get("nativeUrl"), value.get("httpUrl"), bool(value.get("disabled")), node.stat.ephemeral_owner
        )

    async def acquire(self, bundle: Bundle, native_url: str, http_url: str) -> bool:
        """Acquires a bundle for this session; False if another session has it."""
        value = owner_value(native_url, http_url)
        return await self._create_ephemeral(
            self.path(bundle), value, lambda there: all(there.get(key) == value[key] for key in OWNER_KEYS)
        )

    async def disable(self, bundle: Bundle, native_url: str, http_url: str) -> None:
        """Marks this session's bundle as being unloaded."""
        value = owner_value(native_url, http_url, disabled=True)
        await self.store.overwrite(self.path(bundle), encode_json(value))

    async def release(self, bundle: Bundle) -> None:
        """Releases a bundle of this session; no error if it is gone, or another session has it."""
        await self._delete_own(self.path(bundle))

    async def owned(self, namespace: str) -> dict[Bundle, Owner]:
        """The bundles of a namespace that have an owner."""
        try:
            names = await self.store.children(f"{OWNERS}/{namespace}")
        except NotFound:
            return {}
        found = {}
        for name in names:
            try:
                bundle = parse_range(namespace, name)
            except UsageError:  # the namespace of an old name with a cluster in it, tenant/cluster/namespace
                continue
            owner = await self.owner(bundle)
            if owner is not None:
                found[bundle] = owner
        return found

    # -- producer names ---------------------------------------------------------------------------------------------

    async def next_instance(self) -> int:
        """A number that no other running broker has, for the names of producers."""
        path = await self.store.create(PRODUCER_NAMES, b"", ephemeral=True, sequence=True, parents=True)
        return int(path.rpartition("-")[2])

    # -- ephemeral nodes ----------------------------------------------------------------------------------------------

    async def _create_ephemeral(self, path: str, value: Json, ours: Callable[[Json], bool]) -> bool:
        """Creates a node of this session; True too if it is there already, or was ours in an earlier session."""
        for _ in range(CREATE_ROUNDS_MAX):
            try:
                await self.store.create(path, encode_json(value), ephemeral=True, parents=True)
                return True
            except AlreadyExists:
                pass
            try:
                node = await self.store.get(path)
                if node.stat.ephemeral_owner == self.store.session_id:
                    return True
                session = self.store.session_id
                if not node.stat.ephemeral_owner or self._replaced.get(path) == session:
                    return False
                if not ours(decode_json(node.data, source=path)):
                    return False
                self._replaced[path] = session
                await self.store.delete(path, node.stat.version)
            except (NotFound, Conflict):
                continue
            except Corrupt:
                return False
        return False

    async def _delete_own(self, path: str) -> None:
        stat = await self.store.exists(path)
        if stat is None or stat.ephemeral_owner != self.store.session_id:
            return
        try:
            await self.store.delete_any(path)
        except NotFound:
            pass


def _addresses(report: Json) -> Json:
    return {key: report[key] for key in ADDRESSES if report.get(key)}
