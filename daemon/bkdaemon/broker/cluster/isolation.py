"""Isolation policies of a cluster: which brokers may take a namespace. Pure: policies and names in, names out.

    a policy's namespace     its primary brokers; its secondary ones too while fewer than min_limit of those are up
    any other namespace      the brokers that are not primary in any policy

Namespaces and brokers are selected by regular expressions; a broker's host is compared, without its port. Where several
policies match, the first is used. usage_threshold is stored and returned, but not used, as in Java's load manager.
Source: NamespaceIsolationPolicies.java, LoadManagerShared.java (applyNamespacePolicies), MinAvailablePolicy.java.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from bkctl.meta.documents import Json, read_document
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkctl.meta.store import MetadataStore
from bkdaemon.broker.patterns import InvalidPattern, compiled

NODE: Final = "namespaceIsolationPolicies"
REPORTED_MAX: Final = 1000

_reported: set[str] = set()
_log = logging.getLogger(__name__)


def isolation_path(cluster: str) -> str:
    """Returns the path of the policies of a cluster."""
    return f"{CLUSTERS}/{cluster}/{NODE}"


async def isolation_policies(store: MetadataStore, cluster: str) -> Json:
    """Returns the policies of a cluster by name; {} in most clusters."""
    found = await read_document(store, isolation_path(cluster))
    return {} if found is None else found.value


def matches(patterns: Any, text: str) -> bool:
    """True if one of the patterns matches the whole text; an invalid pattern never matches."""
    return any(_fits(one, text) for one in patterns or [])


def _fits(one: Any, text: str) -> bool:
    try:
        return compiled(one).fits(text)
    except TypeError:
        return False
    except InvalidPattern as error:
        if one not in _reported and len(_reported) < REPORTED_MAX:
            _reported.add(one)
            _log.warning("ignoring a pattern of a namespace isolation policy: %s", error.message)
        return False


def policy_of(policies: Mapping[str, Any], namespace: str) -> Json | None:
    """Returns the policy of a namespace; None if no policy matches."""
    return next((one for one in policies.values() if matches(one.get("namespaces"), namespace)), None)


def brokers_for(policies: Mapping[str, Any], namespace: str, brokers: Iterable[str]) -> set[str]:
    """Returns those of the available brokers, as host:port, that may take a namespace."""
    hosts = {broker: broker.rpartition(":")[0] for broker in brokers}
    policy = policy_of(policies, namespace)
    if policy is None:
        every = [one.get("primary") for one in policies.values()]
        return {broker for broker, host in hosts.items() if not any(matches(primary, host) for primary in every)}
    primary = {broker for broker, host in hosts.items() if matches(policy.get("primary"), host)}
    if len(primary) >= min_limit(policy):
        return primary
    return primary | {broker for broker, host in hosts.items() if matches(policy.get("secondary"), host)}


def min_limit(policy: Json) -> int:
    """Returns the number of available primary brokers below which secondary ones are used too."""
    parameters = (policy.get("auto_failover_policy") or {}).get("parameters") or {}
    try:
        return int(parameters.get("min_limit", 0))
    except (TypeError, ValueError):
        return 0


def changed(old: Json | None, new: Json, namespaces: Collection[str]) -> list[str]:
    """Returns the namespaces to unload so that a new or changed policy takes effect, according to its unload_scope.

    all_matching: those that match the policy, before or now. none: no namespace. changed (default): those that were
    added or removed, and all_matching if the primary brokers differ.
    """
    scope = new.get("unload_scope") or "changed"
    if scope == "none":
        return []
    before, now = set((old or {}).get("namespaces") or []), set(new["namespaces"])
    moved = old is not None and sorted(old.get("primary") or []) != sorted(new["primary"])
    patterns = before | now if scope == "all_matching" or moved else before ^ now
    return [namespace for namespace in namespaces if matches(patterns, namespace)]
