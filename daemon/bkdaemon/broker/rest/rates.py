"""Rates of a namespace in Pulsar's REST interface: limits of publishing, dispatching and subscribing.

Each policy has a rate for every cluster; that of this cluster is returned and changed. The rate of replication is
refused with 405. Source: NamespacesBase.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from bkctl.meta.documents import Json
from bkctl.meta.policies import full_rate
from bkdaemon.broker.rest.base import Handler, body_of, null
from bkdaemon.broker.rest.namespaces import NAMESPACE, change_policies, policies_of, refusing_policy

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

REPLICATION: Final = "replicatorDispatchRate"
NO_REPLICATION: Final = "This broker does not replicate: replicatorDispatchRate is not enforced"
PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "publishRate": ("publishMaxMessageRate",),
    "dispatchRate": ("topicDispatchRate", "clusterDispatchRate"),
    "subscriptionDispatchRate": ("subscriptionDispatchRate",),
    "subscribeRate": ("clusterSubscribeRate",),
    REPLICATION: (REPLICATION,),
}
"""Keys of the policies by the path after a namespace; the first key is returned, all are changed."""


def _rate(path: str, keys: tuple[str, ...]) -> tuple[Handler, Handler, Handler]:
    async def read(service: MaintainedBroker, request: Request) -> Any:
        policies = await policies_of(service, request)
        found = (policies.get(keys[0]) or {}).get(service.config.cluster)
        return null() if found is None else found

    async def change(service: MaintainedBroker, request: Request, value: Json | None) -> None:
        cluster = service.config.cluster

        def changed(old: Json) -> Json:
            new = dict(old)
            for key in keys:
                others = {name: rate for name, rate in (old.get(key) or {}).items() if name != cluster}
                new[key] = others if value is None else {**others, cluster: value}
            return new

        await change_policies(service, request, changed)

    async def write(service: MaintainedBroker, request: Request) -> None:
        value = await body_of(request)
        await change(service, request, None if value is None else full_rate(keys[0], value))

    async def remove(service: MaintainedBroker, request: Request) -> None:
        await change(service, request, None)

    return read, write, remove


def _routes() -> dict[tuple[str, str], Handler]:
    table: dict[tuple[str, str], Handler] = {}
    for path, keys in PATHS.items():
        read, write, remove = _rate(path, keys)
        url = f"{NAMESPACE}/{path}"
        table |= {("GET", url): read, ("POST", url): write, ("DELETE", url): remove}
    table["POST", f"{NAMESPACE}/{REPLICATION}"] = refusing_policy(NO_REPLICATION)
    return table


RATES: Final = _routes()
