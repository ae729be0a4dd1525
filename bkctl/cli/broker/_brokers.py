"""The brokers to contact: the named ones, or all registered ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.pulsar_admin import Admin
from bkctl.errors import NotFound

if TYPE_CHECKING:
    from bkctl.cli.env import Env

Brokers = Annotated[list[str] | None, typer.Argument(metavar="[BROKER…]", help="ids as in `broker list`; default: all")]


async def admins(env: Env, wanted: Sequence[str] | None) -> dict[str, Admin]:
    """Each broker's REST interface.

    Raises:
        NotFound: a named broker, or every broker, is not registered.
    """
    from bkctl.meta.brokers import BrokerStore

    found = {}
    async with env.cluster() as cluster:
        store = BrokerStore(await cluster.pulsar())
        for broker_id in list(env.names(wanted or ())) or await store.brokers():
            report = await store.report(broker_id)
            if report is None:
                raise NotFound(f"no broker {broker_id} is registered", hint="bkctl broker list")
            found[broker_id] = Admin.of(env, report.get("webServiceUrl"))
    if not found:
        raise NotFound("no broker is registered", hint="bkctl broker start -c broker.conf")
    return found
