"""The bundles this broker owns: leases in the metadata store, the leader's election, the assignment of unowned bundles.

    owner known                     the client is sent there
    unowned, and we lead            the least loaded broker takes it: we do, or the client is sent there to insist
    unowned, and another leads      the client is sent to the leader
    unowned, without a leader       as if we led
    unowned, and the client insists we take it

A lease is an ephemeral node: it is deleted with its session. When our session expires, every bundle is released at
once; entries that are written meanwhile are safe because the next owner fences the ledgers, not because of the lease.
Java's brokers use the same nodes, and both kinds respect each other's leases.
Source: OwnershipCache.java, NamespaceService.java, ModularLoadManagerImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import BkctlError, NotFound, Unavailable
from bkctl.meta.brokers import LEADER, BrokerStore, Owner
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.store import SessionEvent, WatchEvent
from bkctl.model.bundle import Bundle, Bundles
from bkctl.model.topic import TopicName
from bkdaemon.broker.cluster.balance import OVERLOADED, choose
from bkdaemon.broker.cluster.isolation import brokers_for, isolation_policies
from bkdaemon.broker.topic.backend import Lookup

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore

BUNDLES_AGE_MAX_S: Final = 5.0
NAMESPACES_CACHED_MAX: Final = 1_000
TOLD_CHANGE: Final = 0.1
"""loadBalancerReportUpdateThresholdPercentage: the share of bundles that may change without a new load report."""
REGISTER_RETRY_S: Final = 0.5
ACQUIRES_MAX: Final = 3  # times a bundle is found taken and free again
LEAVES_AT_A_TIME_MAX: Final = 32
"""Bundles that are released together."""
GIVING_UP_WAIT_S: Final = 3.0
"""How long a lookup waits for a bundle that its owner releases. Refused clients back off before they retry."""
LOST_OWNER: Final = "the owner of {} is being changed; look it up again"
NO_BROKER: Final = "No broker was available to own {}: the isolation policies of this cluster allow none that is up"

_log = logging.getLogger(__name__)


class NoBroker(Unavailable):
    """Isolation policies allow none of the available brokers to take a bundle."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Addresses and id of a broker."""

    broker_id: str
    native_url: str
    http_url: str


class Ownership:
    """The bundles of one broker.

    Args:
        store: holds the leases.
        address: of this broker.
        cluster: whose isolation policies say who may take what.

    Attributes:
        owned: bundles of this session that are not being unloaded.
        leaving: true once it takes no more bundles.
        on_lost: called with bundles that are no longer ours; their topics are to be closed without using the store.
        report: creates the load report of the registration.
        goals: the target brokers of bundles that the leader had unloaded.
        overloaded: the load, 0 to 1, from which on a broker gets no bundles.
    """

    def __init__(self, store: MetadataStore, address: BrokerAddress, cluster: str) -> None:
        self.address = address
        self.cluster = cluster
        self.owned: set[Bundle] = set()
        self.leading = False
        self.leaving = False
        self.on_lost: Callable[[set[Bundle]], None] = lambda _: None
        self.report: Callable[[], dict[str, Any]] = dict
        self.goals: dict[Bundle, str] = {}
        self.overloaded = OVERLOADED
        self._store = store
        self.brokers = BrokerStore(store)
        self._namespaces = NamespaceStore(store)
        self._bundles: dict[str, tuple[float, Bundles]] = {}
        self._readings: dict[str, asyncio.Task[Bundles]] = {}
        self._assigned: dict[str, tuple[object, int]] = {}  # broker → when it told its load, what it was given since
        self._told = self._told_bundles = 0
        self._acquiring: dict[Bundle, asyncio.Task[bool]] = {}
        self._choosing: dict[Bundle, asyncio.Task[Lookup | None]] = {}
        self._unloading: set[Bundle] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._cancel: Callable[[], None] = lambda: None
        self.registered = asyncio.Event()

    # -- being there --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Registers and stands for election, now and after every loss of the session; returns once registered."""
        self._cancel = self._store.on_session(self._session_changed)
        self._task = asyncio.create_task(self._keep(), name="registration")
        self._wake.set()
        await self.registered.wait()

    async def stop(self) -> None:
        """Release leases, leadership and registration."""
        self._cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            for bundle in list(self.owned):
                await self.brokers.release(bundle)
            self.owned.clear()
            if self.registered.is_set():  # else it has left before, or the session has ended
                await self.brokers.resign()
                await self.brokers.unregister(self.address.broker_id)
        except BkctlError as e:
            _log.warning("failed to release all leases: %s; they end with the session", e)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            lost, self.owned = self.owned, set()
            self.leading = False
            self.registered.clear()
            if lost:
                _log.warning("the metadata session expired: unloading %d bundles", len(lost))
                self.on_lost(lost)
        if event is not SessionEvent.SUSPENDED:
            self._wake.set()

    async def _keep(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if not self.registered.is_set():
                    self._told_bundles = len(self.owned)
                    if not await self.brokers.register(self.address.broker_id, self.report()):
                        raise Unavailable(f"{self.address.broker_id} is registered by another session still")
                    self.registered.set()
                await self._store.watch_data(LEADER, self._leader_changed)
                self.leading = await self.brokers.try_to_lead(self.address.broker_id, self.address.http_url)
            except BkctlError as e:
                _log.info("failed to register: %s; retrying", e)
                await asyncio.sleep(REGISTER_RETRY_S)
                self._wake.set()

    def _leader_changed(self, event: WatchEvent) -> None:
        self._wake.set()

    async def tell_load(self) -> None:
        """Stores the current load report."""
        if self.registered.is_set():
            self._told_bundles = len(self.owned)
            await self.brokers.update_report(self.address.broker_id, self.report())
            self._told += 1

    async def tell_change(self) -> None:
        """Stores the load report if the number of bundles has changed by more than TOLD_CHANGE since the last one."""
        before, now = self._told_bundles, len(self.owned)
        if abs(now - before) > before * TOLD_CHANGE:
            await self.tell_load()

    # -- who owns what ------------------------------------------------------------------------------------------------

    async def bundles(self, namespace: str) -> Bundles:
        """Returns the bundles of a namespace, at most BUNDLES_AGE_MAX_S old; concurrent calls share one read.

        Raises:
            NotFound: the namespace does not exist.
        """
        now = asyncio.get_running_loop().time()
        known = self._bundles.get(namespace)
        if known is not None and now - known[0] < BUNDLES_AGE_MAX_S:
            return known[1]
        task = self._readings.get(namespace)
        if task is None:
            task = self._readings[namespace] = asyncio.ensure_future(self._read_bundles(namespace, now))
            task.add_done_callback(lambda done: self._bundles_read(namespace, done))
        return await asyncio.shield(task)

    async def _read_bundles(self, namespace: str, now: float) -> Bundles:
        if not await self._namespaces.exists(namespace):
            raise NotFound(f"namespace {namespace} does not exist", namespace=namespace)
        bundles = await self._namespaces.bundles(namespace)
        if self._readings.get(namespace) is asyncio.current_task():  # else they have changed meanwhile
            if len(self._bundles) >= NAMESPACES_CACHED_MAX:
                self._bundles.clear()
            self._bundles[namespace] = (now, bundles)
        return bundles

    def _bundles_read(self, namespace: str, task: asyncio.Task[Bundles]) -> None:
        if self._readings.get(namespace) is task:
            del self._readings[namespace]
        if not task.cancelled():
            task.exception()  # whoever waits has it

    def forget(self, namespace: str) -> None:
        """Drops the cached bundles of a namespace, because they have changed."""
        self._bundles.pop(namespace, None)
        self._readings.pop(namespace, None)

    async def bundle_of(self, topic: TopicName) -> Bundle:
        """Returns the bundle of a topic. NotFound: the namespace does not exist."""
        return (await self.bundles(topic.namespace_name)).of(str(topic))

    async def owns(self, topic: TopicName) -> bool:
        """True if the topic's bundle is ours.

        Others may see a lease of ours, and send clients here, before we know of it ourselves.
        """
        bundle = await self.bundle_of(topic)
        taking = self._acquiring.get(bundle)
        if taking is not None:
            await asyncio.wait((taking,))
        return bundle in self.owned

    async def check_owned(self, topic: TopicName) -> None:
        """Returns if the topic's bundle is ours.

        Raises:
            Unavailable: another broker owns it, or none.
        """
        try:
            if await self.owns(topic):
                return
        except NotFound:
            pass
        raise Unavailable(f"{topic} is not served by this broker; look it up again", topic=str(topic))

    async def lookup(self, topic: TopicName, *, authoritative: bool) -> Lookup:
        """Returns the owner of a topic; this broker takes an unowned topic if it is to.

        Raises:
            NotFound: the namespace does not exist. Unavailable: the owner is unknown now.
        """
        for _ in range(ACQUIRES_MAX):
            bundle = await self.bundle_of(topic)
            if self.leaving and bundle not in self.owned:
                return await self._elsewhere(bundle)
            if bundle in self.owned:
                return Lookup(self.address.native_url)
            owner = await self._owner(bundle)
            if owner is not None and owner.session_id == self._store.session_id and bundle not in self._unloading:
                await self._adopt(bundle, owner)
                continue
            mine = owner is not None and owner.session_id == self._store.session_id
            if owner is not None and not mine and owner.native_url == self.address.native_url:  # from before a kill
                if await self._acquire(bundle):
                    return Lookup(self.address.native_url)
                raise Unavailable(LOST_OWNER.format(bundle), bundle=str(bundle))
            if owner is not None:
                return self._at(owner, bundle)
            other = None if authoritative else await self._chosen(bundle)
            if other is not None:
                return other
            if await self._acquire(bundle):
                return Lookup(self.address.native_url)
        raise Unavailable(LOST_OWNER.format(bundle), bundle=str(bundle))

    async def _owner(self, bundle: Bundle) -> Owner | None:
        """Returns the owner of a bundle; waits up to GIVING_UP_WAIT_S for one that is being released."""
        owner = await self.brokers.owner(bundle)
        try:
            async with asyncio.timeout(GIVING_UP_WAIT_S):
                while owner is not None and self._given_up(bundle, owner):
                    owner = await self._next_owner(bundle)
        except TimeoutError:
            pass
        return owner

    async def _next_owner(self, bundle: Bundle) -> Owner | None:
        """Returns the owner of a bundle that is being released, once its lease has changed."""
        changed = asyncio.Event()
        cancel = await self._store.watch_data(self.brokers.path(bundle), lambda _: changed.set())
        try:
            owner = await self.brokers.owner(bundle)
            if owner is None or not self._given_up(bundle, owner):
                return owner
            await changed.wait()
            return await self.brokers.owner(bundle)
        finally:
            cancel()

    def _given_up(self, bundle: Bundle, owner: Owner) -> bool:
        if owner.session_id == self._store.session_id:
            return bundle in self._unloading
        return owner.disabled

    def _at(self, owner: Owner, bundle: Bundle) -> Lookup:
        if owner.disabled or not owner.native_url or owner.session_id == self._store.session_id:
            raise Unavailable(LOST_OWNER.format(bundle), bundle=str(bundle))  # ours: being unloaded just now
        return Lookup(owner.native_url)

    async def _adopt(self, bundle: Bundle, owner: Owner) -> None:
        """Takes or releases a bundle whose lease is ours, though the store's answer was lost."""
        if owner.disabled:
            await self.brokers.release(bundle)
        elif await self._still_one(bundle):
            self.owned.add(bundle)

    async def _chosen(self, bundle: Bundle) -> Lookup | None:
        """Returns _candidate(), called once for concurrent lookups, so that the bundle is assigned and counted once."""
        task = self._choosing.get(bundle)
        if task is None:
            task = self._choosing[bundle] = asyncio.ensure_future(self._candidate(bundle))
            task.add_done_callback(lambda done: self._has_chosen(bundle, done))
        return await asyncio.shield(task)

    def _has_chosen(self, bundle: Bundle, task: asyncio.Task[Lookup | None]) -> None:
        del self._choosing[bundle]
        if not task.cancelled():
            task.exception()  # whoever waits has it

    async def _candidate(self, bundle: Bundle) -> Lookup | None:
        """Returns the broker for an unowned bundle; None for this one.

        Raises:
            NoBroker: none that is up may take it.
        """
        if not self.leading:
            leader = await self.brokers.leader()
            report = await self.brokers.report(str((leader or {}).get("brokerId")))
            url = (report or {}).get("pulsarServiceUrl")
            if leader is not None and url and leader["brokerId"] != self.address.broker_id:
                return Lookup(str(url), redirect=True, authoritative=False)
        reports, ours = await self.reports(), self.address.broker_id
        policies = await isolation_policies(self._store, self.cluster)
        allowed = brokers_for(policies, bundle.namespace, {*reports, ours})
        goal = self.goals.get(bundle, "")
        known = {name: reports[name] for name in reports if name in allowed}
        told = {name: report.get("lastUpdate") for name, report in reports.items()} | {ours: self._told}
        since = {name: count for name, (at, count) in self._assigned.items() if told.get(name) == at}
        chosen = choose({goal: known[goal]} if goal in known else known, since, ours, self.overloaded)
        if chosen is None and ours not in allowed:
            raise NoBroker(NO_BROKER.format(bundle), bundle=str(bundle))
        if chosen is None:
            return None
        self._assigned = {name: (told.get(name), count) for name, count in since.items()}
        self._assigned[chosen] = (told.get(chosen), since.get(chosen, 0) + 1)
        if chosen == ours:
            return None
        return Lookup(str(reports[chosen]["pulsarServiceUrl"]), redirect=True, authoritative=True)

    async def reports(self) -> dict[str, dict[str, Any]]:
        """The load reports of all brokers by their ids, our own as it is now."""
        ids = await self.brokers.brokers()
        found = {name: None if name == self.address.broker_id else await self.brokers.report(name) for name in ids}
        told = {name: report for name, report in found.items() if report is not None}
        return told | ({self.address.broker_id: self.report()} if self.address.broker_id in ids else {})

    async def _acquire(self, bundle: Bundle) -> bool:
        """Takes a bundle that seemed unowned; concurrent calls share the result."""
        task = self._acquiring.get(bundle)
        if task is None:
            task = asyncio.create_task(self._take(bundle))
            self._acquiring[bundle] = task
            task.add_done_callback(lambda _: self._acquiring.pop(bundle, None))
        return await asyncio.shield(task)

    async def _take(self, bundle: Bundle) -> bool:
        session = self._store.session_id
        taken = await self.brokers.acquire(bundle, self.address.native_url, self.address.http_url)
        if taken and await self._still_one(bundle) and session == self._store.session_id:
            self.owned.add(bundle)
            _log.info("acquired bundle %s", bundle)
            return True
        return False

    async def _still_one(self, bundle: Bundle) -> bool:
        """Returns whether a leased bundle still exists; if another broker has split it meanwhile, releases the lease.

        Called while we hold the lease. Without it no broker splits the bundle, so the result stays true.
        """
        if bundle in (await self._namespaces.bundles(bundle.namespace)).all():
            return True
        self.forget(bundle.namespace)
        await self.brokers.release(bundle)
        return False

    async def _elsewhere(self, bundle: Bundle) -> Lookup:
        """Returns where a client is sent during shutdown: to the owner, else to the leader, which selects one."""
        owner = await self._owner(bundle)
        if owner is not None:
            return self._at(owner, bundle)
        leader = await self.brokers.leader()
        report = await self.brokers.report(str((leader or {}).get("brokerId")))
        if report is None or not report.get("pulsarServiceUrl"):
            raise Unavailable(f"this broker leaves, and none leads yet that would take {bundle}", bundle=str(bundle))
        return Lookup(str(report["pulsarServiceUrl"]), redirect=True, authoritative=False)

    async def leave(self, close: Callable[[Bundle], Awaitable[None]]) -> None:
        """Stops taking bundles, resigns as leader, and unloads every bundle after closing its topics.

        Raises:
            Unavailable: the store does not answer; the remaining leases expire with the session.
        """
        self.leaving = True
        self._cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.registered.clear()
        self.leading = False
        await self.brokers.resign()
        await self.brokers.unregister(self.address.broker_id)
        several = asyncio.Semaphore(LEAVES_AT_A_TIME_MAX)

        async def one(bundle: Bundle) -> None:
            async with several:
                await self.unload(bundle, close)

        results = await asyncio.gather(*(one(bundle) for bundle in list(self.owned)), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    # -- releasing ----------------------------------------------------------------------------------------------------

    async def unload(self, bundle: Bundle, close: Callable[[Bundle], Awaitable[None]]) -> None:
        """Unloads a bundle gracefully: no client is sent here any more, topics are closed, the lease is deleted.

        Raises:
            NotFound: this broker does not own it.
        """
        if bundle not in self.owned:
            raise NotFound(f"{bundle} is not owned by this broker", bundle=str(bundle))
        self.owned.discard(bundle)
        self._unloading.add(bundle)
        cut_short = False
        try:
            try:
                await self.brokers.disable(bundle, self.address.native_url, self.address.http_url)
            except BkctlError as e:  # clients that are sent here meanwhile are refused
                _log.warning("unloading %s, but not all brokers were notified: %s", bundle, e)
            await close(bundle)
        except asyncio.CancelledError:
            cut_short = self.leaving  # timed out: the lease expires with the session
            raise
        finally:
            try:
                if not cut_short:
                    await self.brokers.release(bundle)
            finally:
                self._unloading.discard(bundle)

    async def give_up_strays(self, close: Callable[[Bundle], Awaitable[None]]) -> None:
        """Releases bundles that no longer exist: another broker deleted or recreated the namespace.

        Raises:
            Unavailable: the store does not answer.
        """
        for namespace in {bundle.namespace for bundle in self.owned}:
            try:
                there = (await self.bundles(namespace)).all()
            except NotFound:
                there = []
            for bundle in [one for one in self.owned if one.namespace == namespace and one not in there]:
                _log.warning("unloading %s: the bundle does not exist any more", bundle)
                await self.unload(bundle, close)

    async def split(self, bundle: Bundle, close: Callable[[Bundle], Awaitable[None]], at: Sequence[int] = ()) -> None:
        """Splits a bundle, ours or an unowned one, into halves or at positions; any broker may take each part.

        Raises:
            UsageError: it is not a bundle, or too small. Unavailable: another broker owns it, or we are unloading it.
        """
        if bundle in self.owned:
            (await self._namespaces.bundles(bundle.namespace)).split(bundle, at)  # raises if it cannot be split
        if bundle in self.owned:

            async def cut(closed: Bundle) -> None:
                await close(closed)
                await self._cut(bundle, at)

            await self.unload(bundle, cut)  # no broker takes a part while a topic in it is being closed
            return
        if bundle in self._unloading or not await self._acquire(bundle):
            raise Unavailable(LOST_OWNER.format(bundle), bundle=str(bundle))
        await self._cut(bundle, at)
        if bundle in self.owned:
            await self.unload(bundle, close)

    async def _cut(self, bundle: Bundle, at: Sequence[int]) -> None:
        await self._namespaces.split_bundle(bundle, at)
        self.forget(bundle.namespace)
