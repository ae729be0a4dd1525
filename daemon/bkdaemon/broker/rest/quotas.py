"""Resource quotas of bundles in Pulsar's REST interface: what Java's load manager supposes of a bundle that is new.

    /loadbalance/resource-quota/default     of every bundle
    /loadbalance/resource-quota/BUNDLE      of one

Stored and told as by Java's broker, whose brokers in the same cluster reckon with it; ours place a bundle by what flows
in it now. Source: ResourceQuotasBase.java, BundlesQuotas.java, LoadBalanceResources.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from bkctl.errors import NotFound
from bkctl.meta.documents import Json
from bkctl.meta.policies import Kind, typed
from bkdaemon.broker.rest.base import ADMIN, BAD_REQUEST, Answered, Handler, body_of
from bkdaemon.broker.rest.bundles import bundle_of
from bkdaemon.broker.rest.isolation import store_document, stored_document

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

QUOTAS: Final = f"{ADMIN}/resource-quotas"
QUOTA: Final = QUOTAS + "/{tenant}/{namespace}/{bundle}"
NODES: Final = "/loadbalance/resource-quota"
DEFAULT: Final = f"{NODES}/default"
FIELDS: Final[Kind] = {
    **dict.fromkeys(("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory"), ("double", 0.0)),
    "dynamic": ("bool", True),
}
INITIAL: Final = {
    "msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 100000.0, "bandwidthOut": 300000.0, "memory": 80.0,
    "dynamic": True,
}  # fmt: skip
"""Where nothing is stored."""


async def _given(request: Request) -> Json:
    given = await body_of(request)
    if given is None:
        raise Answered(BAD_REQUEST, "a resource quota is required")
    quota: Json = typed(FIELDS, given, "resource quota")
    return quota


async def default_quota(service: MaintainedBroker, request: Request) -> Json:
    """That of every bundle."""
    found = await stored_document(service.store, DEFAULT)
    return dict(INITIAL) if found is None else found


async def set_default_quota(service: MaintainedBroker, request: Request) -> None:
    """Changes it."""
    await store_document(service.store, DEFAULT, await _given(request))


async def bundle_quota(service: MaintainedBroker, request: Request) -> Json:
    """That of one bundle."""
    found = await stored_document(service.store, f"{NODES}/{await bundle_of(service, request)}")
    return await default_quota(service, request) if found is None else found


async def set_bundle_quota(service: MaintainedBroker, request: Request) -> None:
    """Changes it."""
    bundle = await bundle_of(service, request)
    await store_document(service.store, f"{NODES}/{bundle}", await _given(request))


async def reset_bundle_quota(service: MaintainedBroker, request: Request) -> None:
    """Makes it that of every bundle again."""
    bundle = await bundle_of(service, request)
    path = f"{NODES}/{bundle}"
    try:
        await service.store.delete(path, (await service.store.get(path)).stat.version)
    except NotFound:
        raise NotFound(f"{bundle} has no resource quota of its own") from None


QUOTA_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", QUOTAS): default_quota,
    ("POST", QUOTAS): set_default_quota,
    ("GET", QUOTA): bundle_quota,
    ("POST", QUOTA): set_bundle_quota,
    ("DELETE", QUOTA): reset_bundle_quota,
}
