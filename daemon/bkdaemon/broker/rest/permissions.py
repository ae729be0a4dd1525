"""Permissions in Pulsar's REST interface: stored and told, as by a Java broker without authorization, and not asked.

    auth_policies.namespace_auth             role → actions, of a namespace
    auth_policies.destination_auth           topic → role → actions
    auth_policies.subscription_auth_roles    subscription → roles

Source: NamespacesBase.java, PersistentTopicsBase.java, PulsarAuthorizationProvider.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from bkctl.errors import NotFound
from bkctl.meta.documents import Json
from bkctl.meta.policies import Kind, typed
from bkctl.model.topic import TopicName
from bkdaemon.broker.rest.base import ADMIN, BAD_REQUEST, Answered, Handler, body_of, namespace_of, topic_of
from bkdaemon.broker.rest.namespaces import NAMESPACE, policies_of
from bkdaemon.broker.rest.topics import TOPIC

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

ACTIONS: Final[Kind] = [("produce", "consume", "functions", "sources", "sinks", "packages")]
GRANT: Final[Kind] = {"topic": ("str", None), "role": ("str", None), "actions": (ACTIONS, [])}
OF_NAMESPACE: Final = "namespace_auth"
OF_TOPICS: Final = "destination_auth"
OF_SUBSCRIPTIONS: Final = "subscription_auth_roles"


async def _edit(service: MaintainedBroker, namespace: str, part: str, edit: Callable[[Json], None]) -> None:
    """Changes one map of a namespace's permissions; `edit` gets a copy."""

    def change(old: Json) -> Json:
        policies = dict(old.get("auth_policies") or {})
        found = {key: dict(one) if isinstance(one, dict) else one for key, one in (policies.get(part) or {}).items()}
        edit(found)
        empty: Json = {OF_NAMESPACE: {}, OF_TOPICS: {}, OF_SUBSCRIPTIONS: {}}
        return {**old, "auth_policies": {**empty, **policies, part: found}}

    await service.backend.meta.namespaces.update_policies(namespace, change)
    service.backend.policies.forget(namespace)


def _forget(found: Json, role: str) -> None:
    found.pop(role, None)


async def _stored(service: MaintainedBroker, request: Request, part: str) -> Json:
    return dict(((await policies_of(service, request)).get("auth_policies") or {}).get(part) or {})


# -- of namespaces and subscriptions ----------------------------------------------------------------------------------


async def permissions(service: MaintainedBroker, request: Request) -> Json:
    """Who may do what in a namespace."""
    return await _stored(service, request, OF_NAMESPACE)


async def grant(service: MaintainedBroker, request: Request) -> None:
    """Lets a role do something in a namespace, and nothing else."""
    try:
        await policies_of(service, request)
    except NotFound:
        raise NotFound("Topic's namespace does not exist") from None
    role, actions = request.path_params["role"], await _actions(request)
    await _edit(service, namespace_of(request), OF_NAMESPACE, lambda found: found.update({role: actions}))


async def _actions(request: Request) -> list[str]:
    given = await body_of(request)
    if given is None:
        raise Answered(BAD_REQUEST, "Actions should not be null")
    actions: list[str] = typed(ACTIONS, given, "actions")
    return actions


async def revoke(service: MaintainedBroker, request: Request) -> None:
    """Takes all of it from a role."""
    await policies_of(service, request)
    role = request.path_params["role"]
    await _edit(service, namespace_of(request), OF_NAMESPACE, lambda found: _forget(found, role))


async def subscription_permissions(service: MaintainedBroker, request: Request) -> Json:
    """Who may use which subscription."""
    return await _stored(service, request, OF_SUBSCRIPTIONS)


async def grant_subscription(service: MaintainedBroker, request: Request) -> None:
    """Lets some roles use a subscription, and no others."""
    await policies_of(service, request)
    given = await body_of(request)
    if given is None:
        raise Answered(BAD_REQUEST, "Roles should not be null")
    name, roles = request.path_params["subscription"], typed(["str"], given, "roles")
    await _edit(service, namespace_of(request), OF_SUBSCRIPTIONS, lambda found: found.update({name: roles}))


async def revoke_subscription(service: MaintainedBroker, request: Request) -> None:
    """Takes it from one role; the last one takes the subscription with it."""
    name, role = request.path_params["subscription"], request.path_params["role"]
    if name not in await _stored(service, request, OF_SUBSCRIPTIONS):
        raise NotFound("couldn't find subscription")

    def edit(found: Json) -> None:
        left = [one for one in found.pop(name, None) or [] if one != role]
        found.update({name: left} if left else {})

    await _edit(service, namespace_of(request), OF_SUBSCRIPTIONS, edit)


# -- of topics --------------------------------------------------------------------------------------------------------


async def _there(service: MaintainedBroker, topic: TopicName) -> TopicName:
    topics = service.backend.meta.topics
    if not await topics.exists(topic) and not await topics.partitions(topic.partitioned):
        raise NotFound(f"Topic {topic} not found")
    return topic


async def topic_permissions(service: MaintainedBroker, request: Request) -> Json:
    """Who may do what with a topic, as it is stored of the namespace and of the topic."""
    topic = await _there(service, topic_of(request))
    told = {role: list(actions or []) for role, actions in (await permissions(service, request)).items()}
    for role, actions in ((await _stored(service, request, OF_TOPICS)).get(str(topic)) or {}).items():
        told[role] = list(dict.fromkeys([*told.get(role, []), *(actions or [])]))
    return told


async def grant_topic(service: MaintainedBroker, request: Request) -> None:
    """Lets a role do something with a topic, and nothing else."""
    topic, role = await _there(service, topic_of(request)), request.path_params["role"]
    await _grant(service, [(topic, role, await _actions(request))])


async def _grant(service: MaintainedBroker, grants: list[tuple[TopicName, str, list[str]]]) -> None:
    def edit(found: Json) -> None:
        for topic, role, actions in grants:
            found.setdefault(str(topic), {})[role] = actions

    await _edit(service, grants[0][0].namespace_name, OF_TOPICS, edit)


async def revoke_topic(service: MaintainedBroker, request: Request) -> None:
    """Takes all of it from a role, of the partitions too."""
    await _revoke(service, [(await _there(service, topic_of(request)), request.path_params["role"])])


async def _revoke(service: MaintainedBroker, revoked: list[tuple[TopicName, str]]) -> None:
    topics = service.backend.meta.topics
    named = [(str(topic), role) for topic, role in revoked]
    for topic, role in revoked:
        count = 0 if topic.partition >= 0 else await topics.partitions(topic)
        named += [(str(topic.partition_name(index)), role) for index in range(count)]

    def edit(found: Json) -> None:
        for name, role in named:
            roles = found.get(name) or {}
            roles.pop(role, None)
            if not roles:
                found.pop(name, None)

    await _edit(service, revoked[0][0].namespace_name, OF_TOPICS, edit)


async def _listed(service: MaintainedBroker, request: Request) -> list[tuple[TopicName, str, list[str]]]:
    """Topics, roles, actions of a request: of one namespace, and all there."""
    given = await body_of(request, [])
    if not isinstance(given, list):
        raise Answered(BAD_REQUEST, "permissions must be a list")
    found = [typed(GRANT, one, "permission") for one in given]
    if any("topic" not in one or "role" not in one for one in found):
        raise Answered(BAD_REQUEST, "a permission is of a topic and a role")
    grants = [(TopicName.parse(one["topic"]), one["role"], one["actions"]) for one in found]
    if len({topic.namespace_name for topic, _, _ in grants}) != 1:
        raise Answered(BAD_REQUEST, "The namespace should be the same")
    for topic, _, _ in grants:
        await _there(service, topic)
    return grants


async def grant_topics(service: MaintainedBroker, request: Request) -> None:
    """Lets roles do something with several topics of one namespace."""
    await _grant(service, await _listed(service, request))


async def revoke_topics(service: MaintainedBroker, request: Request) -> None:
    """Takes it from them."""
    await _revoke(service, [(topic, role) for topic, role, _ in await _listed(service, request)])


PERMISSIONS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/permissions"): permissions,
    ("GET", f"{NAMESPACE}/permissions/subscription"): subscription_permissions,
    ("POST", NAMESPACE + "/permissions/subscription/{subscription}"): grant_subscription,
    ("POST", NAMESPACE + "/permissions/{role}"): grant,
    ("DELETE", NAMESPACE + "/permissions/{role}"): revoke,
    ("DELETE", NAMESPACE + "/permissions/{subscription}/{role}"): revoke_subscription,
    ("POST", f"{ADMIN}/namespaces/grantPermissionsOnTopics"): grant_topics,
    ("POST", f"{ADMIN}/namespaces/revokePermissionsOnTopics"): revoke_topics,
    ("GET", f"{TOPIC}/permissions"): topic_permissions,
    ("POST", TOPIC + "/permissions/{role}"): grant_topic,
    ("DELETE", TOPIC + "/permissions/{role}"): revoke_topic,
}
