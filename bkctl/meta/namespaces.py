"""Tenants, namespaces and their policies in the metadata store, as Pulsar keeps them.

    /admin/policies/tenant                   {"adminRoles": […], "allowedClusters": […]}
    /admin/policies/tenant/namespace         the policies; never has children
    /admin/local-policies/tenant/namespace   {"bundles": {"boundaries": […], "numBundles": n}}: these take effect

Keys that we do not know are kept. Source: NamespaceResources.java, TenantResources.java, Policies.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bkctl.errors import AlreadyExists, Conflict, NotFound
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.meta.store import Create, Delete, MetadataStore, NotEmpty
from bkctl.model.bundle import Bundle, Bundles

POLICIES: Final = "/admin/policies"
LOCAL_POLICIES: Final = "/admin/local-policies"
BUNDLES_DEFAULT: Final = 4
"""defaultNumberOfNamespaceBundles."""


def tenant_value(clusters: Sequence[str], admin_roles: Sequence[str] = ()) -> Json:
    """A tenant's node."""
    return {"adminRoles": list(admin_roles), "allowedClusters": list(clusters)}


def bundles_value(bundles: Bundles) -> Json:
    """Bundles as both policies nodes have them."""
    return {"boundaries": bundles.texts(bundles.boundaries), "numBundles": len(bundles)}


def new_policies(clusters: Sequence[str], bundles: Bundles) -> Json:
    """The policies of a new namespace, as Java 4.0.7 writes them."""
    return {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": list(clusters),
        "allowed_clusters": [],
        "bundles": bundles_value(bundles),
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


class NamespaceStore:
    """Tenants and namespaces; a namespace is named `tenant/namespace`."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    # -- tenants ----------------------------------------------------------------------------------------------------

    async def tenants(self) -> list[str]:
        """All tenants, sorted."""
        return await self._children(POLICIES)

    async def tenant(self, tenant: str) -> Json:
        """A tenant's node.

        Raises:
            NotFound: the tenant does not exist.
        """
        found = await read_document(self.store, f"{POLICIES}/{tenant}")
        if found is None:
            raise NotFound(f"tenant {tenant} does not exist", tenant=tenant)
        return found.value

    async def create_tenant(self, tenant: str, value: Json) -> None:
        """Creates a tenant.

        Raises:
            AlreadyExists: it is there.
        """
        try:
            await self.store.create(f"{POLICIES}/{tenant}", encode_json(value), parents=True)
        except AlreadyExists:
            raise AlreadyExists(f"tenant {tenant} exists already", tenant=tenant) from None

    async def update_tenant(self, tenant: str, value: Json) -> None:
        """Replaces what a tenant's node says, but for keys the new value does not name."""
        await self.tenant(tenant)
        await update_document(self.store, f"{POLICIES}/{tenant}", lambda old: old | value)

    async def delete_tenant(self, tenant: str) -> None:
        """Deletes a tenant without namespaces.

        Raises:
            NotFound: it does not exist. Conflict: it has namespaces.
        """
        path = f"{POLICIES}/{tenant}"
        node = await self.store.get(path)
        try:
            await self.store.delete(path, node.stat.version)
        except NotEmpty:
            raise Conflict(f"tenant {tenant} has namespaces", tenant=tenant) from None

    # -- namespaces -------------------------------------------------------------------------------------------------

    async def namespaces(self, tenant: str) -> list[str]:
        """The namespaces of a tenant, as tenant/namespace, sorted.

        Raises:
            NotFound: the tenant does not exist.
        """
        await self.tenant(tenant)
        return [f"{tenant}/{name}" for name in await self._children(f"{POLICIES}/{tenant}")]

    async def policies(self, namespace: str) -> Json:
        """The policies of a namespace.

        Raises:
            NotFound: the namespace does not exist.
        """
        found = await read_document(self.store, f"{POLICIES}/{namespace}")
        if found is None:
            raise NotFound(f"namespace {namespace} does not exist", namespace=namespace)
        return found.value

    async def exists(self, namespace: str) -> bool:
        """True if the namespace has policies."""
        return await self.store.exists(f"{POLICIES}/{namespace}") is not None

    async def create_namespace(self, namespace: str, clusters: Sequence[str], bundles: int = BUNDLES_DEFAULT) -> None:
        """A new namespace with default policies.

        Raises:
            AlreadyExists: it is there. NotFound: its tenant is not.
        """
        await self.tenant(namespace.partition("/")[0])
        await self.store_namespace(namespace, new_policies(clusters, Bundles.even(namespace, bundles)))

    async def store_namespace(self, namespace: str, policies: Json) -> None:
        """A new namespace with these policies; its bundles go into the local node too.

        Raises:
            AlreadyExists: it is there.
        """
        local = {"bundles": policies["bundles"], "migrated": False}
        try:
            await self.store.create(f"{LOCAL_POLICIES}/{namespace}", encode_json(local), parents=True)
        except AlreadyExists:
            pass  # Left by an interrupted deletion; its bundles take effect.
        try:
            await self.store.create(f"{POLICIES}/{namespace}", encode_json(policies), parents=True)
        except AlreadyExists:
            raise AlreadyExists(f"namespace {namespace} exists already", namespace=namespace) from None

    async def update_policies(self, namespace: str, change: Callable[[Json], Json | None]) -> Json:
        """Changes the policies by compare-and-set; keys that `change` leaves alone stay.

        Raises:
            NotFound: the namespace does not exist.
        """
        try:
            return await update_document(self.store, f"{POLICIES}/{namespace}", change)
        except NotFound:
            raise NotFound(f"namespace {namespace} does not exist", namespace=namespace) from None

    async def delete_namespace(self, namespace: str) -> None:
        """Deletes the nodes of a namespace that has no topics any more.

        Raises:
            NotFound: it does not exist.
        """
        node = await self.store.get(f"{POLICIES}/{namespace}")
        operations: list[Create | Delete] = [Delete(f"{POLICIES}/{namespace}", node.stat.version)]
        local = await self.store.exists(f"{LOCAL_POLICIES}/{namespace}")
        if local is not None:
            operations.append(Delete(f"{LOCAL_POLICIES}/{namespace}", local.version))
        await self.store.multi(operations)

    # -- bundles ----------------------------------------------------------------------------------------------------

    async def bundles(self, namespace: str) -> Bundles:
        """The effective bundles: of the local policies, else of the policies, else one for all hashes."""
        for root in (LOCAL_POLICIES, POLICIES):
            found = await read_document(self.store, f"{root}/{namespace}")
            boundaries = ((found.value.get("bundles") or {}) if found is not None else {}).get("boundaries")
            if boundaries:
                return Bundles.parse(namespace, boundaries)
        return Bundles.even(namespace, 1)

    async def split_bundle(self, bundle: Bundle, at: Sequence[int] = ()) -> Bundles:
        """Splits one of the effective bundles, into halves or at positions, by compare-and-set; returns all.

        Raises:
            UsageError: it is unknown, or too small, or a boundary is not inside.
        """
        found: list[Bundles] = []

        def change(old: Json) -> Json:
            there = (old.get("bundles") or {}).get("boundaries") or before
            found.append(Bundles.parse(bundle.namespace, there).split(bundle, at))
            return old | {"bundles": bundles_value(found[-1])}

        before = Bundles.texts((await self.bundles(bundle.namespace)).boundaries)
        await self.update_local_policies(bundle.namespace, change)
        return found[-1]

    # -- what a cluster keeps of a namespace for itself ---------------------------------------------------------------

    async def local_policies(self, namespace: str) -> Json:
        """The local policies of a namespace: `bundles`, `bookieAffinityGroup`; {} if they do not exist."""
        found = await read_document(self.store, f"{LOCAL_POLICIES}/{namespace}")
        return {} if found is None else found.value

    async def update_local_policies(self, namespace: str, change: Callable[[Json], Json | None]) -> None:
        """Changes the local policies; new ones start with the bundles of the policies."""
        path = f"{LOCAL_POLICIES}/{namespace}"
        begin = {"bundles": bundles_value(await self.bundles(namespace)), "migrated": False}
        try:
            await self.store.create(path, encode_json(begin), parents=True)
        except AlreadyExists:
            pass
        await update_document(self.store, path, change)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NotFound:
            return []
