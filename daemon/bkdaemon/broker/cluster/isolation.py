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
    """Where the policies of a cluster are."""
    return f"{CLUSTERS}/{cluster}/{NODE}"


async def isolation_policies(store: MetadataStore, cluster: str) -> Json:
    """The policies of a cluster by their names; none in most clusters."""
    found = await read_document(store, isolation_path(cluster))
    return {} if found is None else found.value


def matches(patterns: Any, text: str) -> bool:
    """True if one of these fits all of the text; an invalid pattern matches nothing."""
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
    """The policy that a namespace is under; None: it is under none."""
    return next((one for one in policies.values() if matches(one.get("namespaces"), namespace)), None)


def brokers_for(policies: Mapping[str, Any], namespace: str, brokers: Iterable[str]) -> set[str]:
    """Of the brokers that are up, as host:port, those that may take a namespace."""
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
    """Of how many primary brokers that are up no secondary one is needed."""
    parameters = (policy.get("auto_failover_policy") or {}).get("parameters") or {}
    try:
        return int(parameters.get("min_limit", 0))
    except (TypeError, ValueError):
        return 0


def changed(old: Json | None, new: Json, namespaces: Collection[str]) -> list[str]:
    """The namespaces to be unloaded, so that a policy that is set now holds: by its unload_scope.

    all_matching: those of the policy, before and now; none: none; changed, as without a word: those that came or went,
    and all where the primary brokers are others now.
    """
    scope = new.get("unload_scope") or "changed"
    if scope == "none":
        return []
    before, now = set((old or {}).get("namespaces") or []), set(new["namespaces"])
    moved = old is not None and sorted(old.get("primary") or []) != sorted(new["primary"])
    patterns = before | now if scope == "all_matching" or moved else before ^ now
    return [namespace for namespace in namespaces if matches(patterns, namespace)]
