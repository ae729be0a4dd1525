"""Permissions in Pulsar's REST interface: what Java's brokers stored is returned; changing it is refused with 405.

    auth_policies.namespace_auth             role → actions, of a namespace
    auth_policies.destination_auth           topic → role → actions
    auth_policies.subscription_auth_roles    subscription → roles

This broker has no authorization. A role that seems to have lost a permission could still use it, so revoking is refused
as well as granting. Source: NamespacesBase.java, PersistentTopicsBase.java, PulsarAuthorizationProvider.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import NotFound
from bkctl.meta.documents import Json
from bkdaemon.broker.rest.base import ADMIN, METHOD_NOT_ALLOWED, Handler, reason, refusing, topic_of
from bkdaemon.broker.rest.namespaces import NAMESPACE, policies_of, refusing_policy
from bkdaemon.broker.rest.topics import TOPIC

if TYPE_CHECKING:
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.maintained import MaintainedBroker

OF_NAMESPACE: Final = "namespace_auth"
OF_TOPICS: Final = "destination_auth"
OF_SUBSCRIPTIONS: Final = "subscription_auth_roles"
NO_AUTHORIZATION: Final = "This broker has no authorization: permissions are not enforced and cannot be changed"


async def _stored(service: MaintainedBroker, request: Request, part: str) -> Json:
    return dict(((await policies_of(service, request)).get("auth_policies") or {}).get(part) or {})


async def permissions(service: MaintainedBroker, request: Request) -> Json:
    """Return the actions of each role in a namespace."""
    return await _stored(service, request, OF_NAMESPACE)


async def subscription_permissions(service: MaintainedBroker, request: Request) -> Json:
    """Return the roles of each subscription."""
    return await _stored(service, request, OF_SUBSCRIPTIONS)


async def _existing(service: MaintainedBroker, request: Request) -> TopicName:
    topic, topics = topic_of(request), service.backend.meta.topics
    if not await topics.exists(topic) and not await topics.partitions(topic.partitioned):
        raise NotFound(f"Topic {topic} not found")
    return topic


async def topic_permissions(service: MaintainedBroker, request: Request) -> Json:
    """Return the actions of each role on a topic, those of the namespace included."""
    topic = await _existing(service, request)
    found = {role: list(actions or []) for role, actions in (await permissions(service, request)).items()}
    for role, actions in ((await _stored(service, request, OF_TOPICS)).get(str(topic)) or {}).items():
        found[role] = list(dict.fromkeys([*found.get(role, []), *(actions or [])]))
    return found


async def refuse_of_topic(service: MaintainedBroker, request: Request) -> Response:
    """Refuse to change the permissions of a topic. Raises: NotFound, it does not exist."""
    await _existing(service, request)
    return reason(METHOD_NOT_ALLOWED, NO_AUTHORIZATION)


_REFUSE: Final = refusing_policy(NO_AUTHORIZATION)
PERMISSIONS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/permissions"): permissions,
    ("GET", f"{NAMESPACE}/permissions/subscription"): subscription_permissions,
    ("POST", NAMESPACE + "/permissions/subscription/{subscription}"): _REFUSE,
    ("POST", NAMESPACE + "/permissions/{role}"): _REFUSE,
    ("DELETE", NAMESPACE + "/permissions/{role}"): _REFUSE,
    ("DELETE", NAMESPACE + "/permissions/{subscription}/{role}"): _REFUSE,
    ("POST", f"{ADMIN}/namespaces/grantPermissionsOnTopics"): refusing(NO_AUTHORIZATION),
    ("POST", f"{ADMIN}/namespaces/revokePermissionsOnTopics"): refusing(NO_AUTHORIZATION),
    ("GET", f"{TOPIC}/permissions"): topic_permissions,
    ("POST", TOPIC + "/permissions/{role}"): refuse_of_topic,
    ("DELETE", TOPIC + "/permissions/{role}"): refuse_of_topic,
}
