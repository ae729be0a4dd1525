"""Bundles of namespaces in Pulsar's REST interface, and operations on all topics of a namespace or a bundle.

A topic's owner performs an operation, whichever broker gets the request.
Source: NamespacesBase.java (internalClearNamespaceBacklogAsync, internalUnsubscribeNamespaceAsync,
internalDeleteNamespaceBundleAsync), NonPersistentTopics.java (getListFromBundle).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from bkctl.errors import Conflict, NotFound, Refused, UsageError
from bkctl.meta.documents import Json
from bkctl.meta.namespaces import bundles_value
from bkctl.model.bundle import Bundle, hash_of, inside, parse_range
from bkctl.model.topic import TopicName
from bkdaemon.broker.cluster.splitting import AT_PLACES, places_of
from bkdaemon.broker.rest import subscriptions as rest_subscriptions
from bkdaemon.broker.rest.base import (
    ADMIN,
    Elsewhere,
    Handler,
    at_topic,
    body_of,
    flag,
    namespace_of,
    own,
    redirect_url,
)
from bkdaemon.broker.rest.forwarding import forward
from bkdaemon.broker.rest.namespaces import NAMESPACE, policies_of

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

REPLICATORS: Final = "pulsar.repl"
"""The prefix of the names of replication cursors."""
NAMES_MAX: Final = 65_536
"""Maximum names that are tried to find one in a bundle."""


async def namespace_bundles(service: MaintainedBroker, request: Request) -> Json:
    """Returns the bundles of a namespace."""
    await policies_of(service, request)
    return bundles_value(await service.backend.meta.namespaces.bundles(namespace_of(request)))


async def unload_namespace(service: MaintainedBroker, request: Request) -> None:
    """Unloads every bundle of a namespace, at its owner."""
    await policies_of(service, request)
    await unload_bundles(service, request, namespace_of(request))


async def unload_bundles(service: MaintainedBroker, request: Request, namespace: str) -> None:
    """Unloads every owned bundle of a namespace; a bundle that no longer exists is left to its owner."""
    ownership = service.backend.ownership
    there = set((await service.backend.meta.namespaces.bundles(namespace)).all())
    for bundle, owner in (await ownership.brokers.owned(namespace)).items():
        if bundle in ownership.owned:
            await ownership.unload(bundle, service.close_bundle)
        elif bundle in there and owner.http_url and not owner.disabled and owner.http_url != ownership.address.http_url:
            url = f"{owner.http_url}{ADMIN}/namespaces/{namespace}/{bundle.range}/unload"
            await forward(service, request, "PUT", url)


async def bundle_of(service: MaintainedBroker, request: Request) -> Bundle:
    """Returns the bundle of a request. Raises: NotFound, the namespace does not exist. Refused, the bundle does not."""
    await policies_of(service, request)
    namespace, text = namespace_of(request), request.path_params["bundle"]
    try:
        bundle = parse_range(namespace, text)
    except UsageError:
        raise Refused(f"Invalid bundle range: {text}") from None
    ownership = service.backend.ownership
    ownership.forget(namespace)
    fitting = (await ownership.bundles(namespace)).at(bundle.lower)
    if fitting.lower != bundle.lower:
        raise Refused(f"Invalid lower boundary for bundle {bundle}. Expected lower boundary of {fitting}")
    if fitting.upper != bundle.upper:
        raise Refused(f"Invalid upper boundary for bundle {bundle}. Expected upper boundary of {fitting}")
    return bundle


async def own_bundle(service: MaintainedBroker, request: Request) -> Bundle:
    """Returns the bundle of a request, ours or unowned. Raises: Elsewhere, another broker owns it."""
    bundle, ownership = await bundle_of(service, request), service.backend.ownership
    if bundle not in ownership.owned:
        owner = await ownership.brokers.owner(bundle)
        if owner is not None and owner.http_url and owner.http_url != ownership.address.http_url:
            raise Elsewhere(redirect_url(owner.http_url, request, authoritative=True))
    return bundle


async def unload_bundle(service: MaintainedBroker, request: Request) -> None:
    """Unloads one bundle, to a broker if one is named; does nothing if it is unowned."""
    ownership = service.backend.ownership
    wanted = re.sub("^https?://", "", request.query_params.get("destinationBroker") or "")
    if wanted and wanted not in await ownership.brokers.brokers():
        raise Conflict("Not allowed unload namespace bundle to inactive destination broker")
    bundle = await own_bundle(service, request)
    if bundle not in ownership.owned:
        return
    await ownership.unload(bundle, service.close_bundle)
    if wanted:
        await _take(service, request, bundle, wanted)


async def _take(service: MaintainedBroker, request: Request, bundle: Bundle, broker_id: str) -> None:
    """Has a broker take an unowned bundle, by an insistent lookup of a topic in it."""
    ownership = service.backend.ownership
    names = (f"persistent://{bundle.namespace}/{number}" for number in range(NAMES_MAX))
    found = next((name for name in names if bundle.lower <= hash_of(name) < bundle.upper), None)
    if found is None:
        return  # a very small bundle: the leader assigns it at a client's lookup
    topic = TopicName.parse(found)
    if broker_id == ownership.address.broker_id:
        await ownership.lookup(topic, authoritative=True)
        return
    url = ((await ownership.brokers.report(broker_id)) or {}).get("webServiceUrl")
    if url:
        path = f"{url}/lookup/v2/topic/{topic.path}?authoritative=true"
        await forward(service, request, "GET", path)


async def split_bundle(service: MaintainedBroker, request: Request) -> None:
    """Split a bundle: into halves, between its topics or at given positions; unless that makes less than two parts."""
    algorithm, given = request.query_params.get("splitAlgorithmName", "").strip(), await body_of(request)
    supported = service.config.split_algorithms
    if algorithm and algorithm not in supported:
        told = ", ".join(supported)
        raise Refused(f"Unsupported namespace bundle split algorithm, supported algorithms are [{told}]")
    places = [place for place in given if isinstance(place, int)] if isinstance(given, list) else []
    if algorithm == AT_PLACES and not places:
        raise Refused(f"With {AT_PLACES} split algorithm, splitBoundaries must not be empty")
    bundle = await own_bundle(service, request)
    cuts = await places_of(service, bundle, algorithm, places)
    if cuts:
        await service.backend.ownership.split(bundle, service.close_bundle, cuts)


async def delete_bundle(service: MaintainedBroker, request: Request) -> None:
    """Unload a bundle without topics; with force its topics are deleted."""
    bundle = await own_bundle(service, request)
    topics = await _topics(service, bundle.namespace, bundle)
    if topics and not flag(request, "force"):
        raise Conflict("Cannot delete non empty bundle")
    for topic in topics:
        await own(service, request, topic)
        await service.upkeep.delete(topic)
        await service.backend.schema_storage.delete(topic)
    if bundle in service.backend.ownership.owned:
        await service.backend.ownership.unload(bundle, service.close_bundle)


async def hash_positions(service: MaintainedBroker, request: Request) -> Json:
    """Returns the positions of a bundle's topics in the hash space: of the requested topics, or of all."""
    bundle = await own_bundle(service, request)
    asked = [TopicName.parse(text) for text in request.query_params.getlist("topics") if text]
    topics = asked or await _topics(service, bundle.namespace, bundle)
    positions = {str(topic): hash_of(str(topic)) for topic in topics if inside(topic, bundle)}
    return {"namespace": bundle.namespace, "bundle": bundle.range, "topicHashPositions": positions}


async def open_in_bundle(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the non-persistent topics that are open in a bundle."""
    bundle = await own_bundle(service, request)
    here = service.server.topics.open
    return sorted(
        str(t) for t in here if not t.persistent and t.namespace_name == bundle.namespace and inside(t, bundle)
    )


# -- all topics at once -----------------------------------------------------------------------------------------------


async def _topics(service: MaintainedBroker, namespace: str, bundle: Bundle | None = None) -> list[TopicName]:
    found = await service.backend.meta.topics.topics(namespace)
    return [topic for topic in found if bundle is None or inside(topic, bundle)]


async def _asked(service: MaintainedBroker, request: Request) -> list[TopicName]:
    """Returns the topics of the request, without system topics."""
    if "bundle" in request.path_params:
        bundle = await own_bundle(service, request)
        found = await _topics(service, bundle.namespace, bundle)
    else:
        await policies_of(service, request)
        found = await _topics(service, namespace_of(request))
    return [topic for topic in found if not topic.local.startswith("__")]


async def clear_backlog(service: MaintainedBroker, request: Request) -> None:
    """Acknowledges all entries, of one subscription or of all."""
    wanted = request.path_params.get("subscription")
    for topic in await _asked(service, request):
        names: Any = await at_topic(service, request, rest_subscriptions.subscriptions, "GET", topic, "subscriptions")
        for name in names:
            if wanted in (None, name):
                tail = ("subscription", name, "skip_all")
                await at_topic(service, request, rest_subscriptions.skip_all, "POST", topic, *tail, subscription=name)


async def unsubscribe(service: MaintainedBroker, request: Request) -> None:
    """Deletes a subscription of every topic; fails at the first topic where it is in use."""
    name = request.path_params["subscription"]
    if name.startswith(REPLICATORS):
        raise Refused("Cannot unsubscribe a replication cursor")
    for topic in await _asked(service, request):
        try:
            tail = ("subscription", name)
            await at_topic(service, request, rest_subscriptions.delete, "DELETE", topic, *tail, subscription=name)
        except NotFound:
            continue  # this topic does not have it


BUNDLES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", NAMESPACE + "/bundles"): namespace_bundles,
    ("PUT", NAMESPACE + "/unload"): unload_namespace,
    ("POST", NAMESPACE + "/clearBacklog"): clear_backlog,
    ("POST", NAMESPACE + "/clearBacklog/{subscription}"): clear_backlog,
    ("POST", NAMESPACE + "/unsubscribe/{subscription}"): unsubscribe,
    ("PUT", NAMESPACE + "/{bundle}/unload"): unload_bundle,
    ("PUT", NAMESPACE + "/{bundle}/split"): split_bundle,
    ("GET", NAMESPACE + "/{bundle}/topicHashPositions"): hash_positions,
    ("POST", NAMESPACE + "/{bundle}/clearBacklog"): clear_backlog,
    ("POST", NAMESPACE + "/{bundle}/clearBacklog/{subscription}"): clear_backlog,
    ("POST", NAMESPACE + "/{bundle}/unsubscribe/{subscription}"): unsubscribe,
    ("DELETE", NAMESPACE + "/{bundle}"): delete_bundle,
    ("GET", ADMIN + "/non-persistent/{tenant}/{namespace}/{bundle}"): open_in_bundle,
}
"""Matched after the other routes: a bundle may have any name."""
