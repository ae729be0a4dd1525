"""Resource quotas of bundles in Pulsar's REST interface: the load that Java's load manager assumes for a new bundle.

    /loadbalance/resource-quota/default     of every bundle
    /loadbalance/resource-quota/BUNDLE      of one

This broker places a bundle by its measured load, so setting a quota is refused with 405; a stored one is returned and
can be removed. Source: ResourceQuotasBase.java, BundlesQuotas.java, LoadBalanceResources.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import NotFound
from bkctl.meta.documents import Json
from bkdaemon.broker.rest.base import ADMIN, METHOD_NOT_ALLOWED, Handler, reason, refusing
from bkdaemon.broker.rest.bundles import bundle_of
from bkdaemon.broker.rest.isolation import stored_document

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

QUOTAS: Final = f"{ADMIN}/resource-quotas"
QUOTA: Final = QUOTAS + "/{tenant}/{namespace}/{bundle}"
NODES: Final = "/loadbalance/resource-quota"
DEFAULT: Final = f"{NODES}/default"
INITIAL: Final = {
    "msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 100000.0, "bandwidthOut": 300000.0, "memory": 80.0,
    "dynamic": True,
}  # fmt: skip
"""The default of Java's broker."""
NO_QUOTAS: Final = "This broker does not use resource quotas: it places bundles by their measured load"


async def default_quota(service: MaintainedBroker, request: Request) -> Json:
    """Return the default quota of bundles."""
    found = await stored_document(service.store, DEFAULT)
    return dict(INITIAL) if found is None else found


async def bundle_quota(service: MaintainedBroker, request: Request) -> Json:
    """Return the quota of a bundle."""
    found = await stored_document(service.store, f"{NODES}/{await bundle_of(service, request)}")
    return await default_quota(service, request) if found is None else found


async def set_bundle_quota(service: MaintainedBroker, request: Request) -> Response:
    """Refuse to set the quota of a bundle. Raises: NotFound, Refused, the bundle does not exist."""
    await bundle_of(service, request)
    return reason(METHOD_NOT_ALLOWED, NO_QUOTAS)


async def reset_bundle_quota(service: MaintainedBroker, request: Request) -> None:
    """Remove the quota of a bundle. Raises: NotFound, none is stored."""
    bundle = await bundle_of(service, request)
    path = f"{NODES}/{bundle}"
    try:
        await service.store.delete(path, (await service.store.get(path)).stat.version)
    except NotFound:
        raise NotFound(f"{bundle} has no resource quota of its own") from None


QUOTA_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", QUOTAS): default_quota,
    ("POST", QUOTAS): refusing(NO_QUOTAS),
    ("GET", QUOTA): bundle_quota,
    ("POST", QUOTA): set_bundle_quota,
    ("DELETE", QUOTA): reset_bundle_quota,
}
