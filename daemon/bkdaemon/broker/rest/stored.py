"""Policies of a namespace that concern other clusters, authorization or filters, and an old policy of schemas.

    allowedClusters           the clusters that a namespace may be in: it is in its own only; refused with 405
    subscriptionAuthMode      names of subscriptions for authorization; refused with 405
    entryFilters              by name; none is installed, as in a Java broker without entryFilterNames
    schemaAutoUpdateCompatibilityStrategy   the old form of schemaCompatibilityStrategy, which overrides it

Values that a Java broker stored are returned. Source: NamespacesBase.java, Namespaces.java, EntryFilterProvider.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from bkctl.meta.documents import Json
from bkctl.meta.policies import Kind, typed
from bkdaemon.broker.cluster.policies import AUTO_UPDATE_STRATEGIES
from bkdaemon.broker.rest.base import BAD_REQUEST, Answered, Handler, body_of, object_of
from bkdaemon.broker.rest.namespaces import NAMESPACE, change_policies, policies_of, refusing_policy
from bkdaemon.broker.rest.topic_policies import topic_there
from bkdaemon.broker.rest.topics import TOPIC

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

NO_AUTH_MODE: Final = "None"
NO_CLUSTERS: Final = "This broker does not replicate: a namespace is in its own cluster only"
NO_AUTHORIZATION: Final = "This broker has no authorization: subscriptionAuthMode is not enforced"
FILTERS: Final[Kind] = {"entryFilterNames": ("str", "")}


async def allowed_clusters(service: MaintainedBroker, request: Request) -> list[str]:
    """Return the clusters that a namespace may be in; none for those of its tenant."""
    return list((await policies_of(service, request)).get("allowed_clusters") or [])


async def auth_mode(service: MaintainedBroker, request: Request) -> str:
    """Return the naming rule of subscriptions for authorization."""
    return str((await policies_of(service, request)).get("subscription_auth_mode") or NO_AUTH_MODE)


async def auto_update(service: MaintainedBroker, request: Request) -> Any:
    """Return the old form of the schema compatibility strategy."""
    return (await policies_of(service, request)).get("schema_auto_update_compatibility_strategy")


async def set_auto_update(service: MaintainedBroker, request: Request) -> None:
    """Set the old form of the schema compatibility strategy; an empty body removes it."""
    given, key = await body_of(request), "schema_auto_update_compatibility_strategy"
    strategy = (
        None
        if given is None
        else typed(tuple(AUTO_UPDATE_STRATEGIES), given, "schema auto update compatibility strategy")
    )

    def changed(old: Json) -> Json:
        left = {name: value for name, value in old.items() if name != key}
        return left if strategy is None else left | {key: strategy}

    await change_policies(service, request, changed)


async def _refuse_filters(request: Request) -> None:
    """Raises: Answered, the body names no filter, or one that is not installed (400)."""
    names = typed(FILTERS, await object_of(request), "entry filters")["entryFilterNames"].split(",")
    asked = [name.strip() for name in names if name.strip()]
    text = "entryFilterNames can't be empty. To remove entry filters use the remove method."
    raise Answered(BAD_REQUEST, f"Entry filter '{asked[0]}' not found" if asked else text)


async def set_filters(service: MaintainedBroker, request: Request) -> None:
    """Refuse every filter: none is installed."""
    await policies_of(service, request)
    await _refuse_filters(request)


async def remove_filters(service: MaintainedBroker, request: Request) -> None:
    """Remove the filters that a Java broker stored."""
    await change_policies(
        service, request, lambda old: {name: value for name, value in old.items() if name != "entryFilters"}
    )


async def set_topic_filters(service: MaintainedBroker, request: Request) -> None:
    """Refuse every filter of a topic: none is installed."""
    await topic_there(service, request)
    await _refuse_filters(request)


STORED_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/allowedClusters"): allowed_clusters,
    ("POST", f"{NAMESPACE}/allowedClusters"): refusing_policy(NO_CLUSTERS),
    ("GET", f"{NAMESPACE}/subscriptionAuthMode"): auth_mode,
    ("POST", f"{NAMESPACE}/subscriptionAuthMode"): refusing_policy(NO_AUTHORIZATION),
    ("GET", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"): auto_update,
    ("PUT", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"): set_auto_update,
    ("POST", f"{NAMESPACE}/entryFilters"): set_filters,
    ("DELETE", f"{NAMESPACE}/entryFilters"): remove_filters,
    ("POST", f"{TOPIC}/entryFilters"): set_topic_filters,
}
