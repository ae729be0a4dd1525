"""The handling of owners by commands that delete ledgers: find them, refuse, or show them in the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.errors import Refused

if TYPE_CHECKING:
    from bkctl.cli.access import AccessEnv, ClusterAccess
    from bkctl.cli.env import Env
    from bkctl.meta.owners.base import Claim, OwnerPlugin
    from bkctl.meta.owners.search import Found, Unreadable

Owned = Annotated[bool, typer.Option("--owned", help="delete ledgers even if a topic, stream or application uses them")]

NAMESPACES: Final = "distributedlog-namespaces"
"""Setting with DistributedLog namespaces as absolute paths, separated by commas."""
SHOWN_MAX: Final = 5
_HINT: Final = "--owned overrides"


async def owner_plugins(cluster: ClusterAccess) -> tuple[OwnerPlugin, ...]:
    """The plug-ins, for all places of this metadata store where Pulsar and DistributedLog may have their metadata.

    Raises:
        UsageError: BKCTL_PULSAR_PATH or BKCTL_DISTRIBUTEDLOG_NAMESPACES contains a value that is not a path.
    """
    from bkctl.meta.owners.search import plugins
    from bkctl.meta.store import parent_of

    prefixes = [await cluster.pulsar_path()]
    if not cluster.env.setting("pulsar-path"):
        prefixes += [parent_of(cluster.root), "/"]
    return plugins(tuple(dict.fromkeys(prefix.rstrip("/") for prefix in prefixes)), stream_namespaces(cluster.env))


def stream_namespaces(env: AccessEnv) -> list[str]:
    """The DistributedLog namespaces of the setting.

    Raises:
        UsageError: one is not an absolute path.
    """
    from bkctl.meta.store import check_path

    return [check_path(path.strip()) for path in (env.setting(NAMESPACES) or "").split(",") if path.strip()]


async def find_owners(
    env: Env,
    cluster: ClusterAccess,
    ledger_ids: Collection[int],
    claims: Mapping[int, Claim],
    plugins: tuple[OwnerPlugin, ...],
    *,
    owned: bool,
) -> Found:
    """The owners of the ledgers to delete.

    Raises:
        Refused: a ledger has an owner, or a node cannot be decoded, and `owned` is false.
    """
    from bkctl.meta.owners.search import owners_of

    found = await owners_of(cluster.store, plugins, ledger_ids, claims)
    if found.owners and not owned:
        raise Refused(
            "; ".join(_words(ledger_id, found) for ledger_id in sorted(found.owners)[:SHOWN_MAX])
            + _more(len(found.owners) - SHOWN_MAX, "ledgers"),
            hint=_HINT,
            owners=[
                {"ledger_id": ledger_id, "owner_kind": owner.kind, "owner": owner.name, "path": owner.path or None}
                for ledger_id, owners in sorted(found.owners.items())[:SHOWN_MAX]
                for owner in owners
            ],
        )
    check_readable(env, found.unreadable, owned=owned)
    return found


def _words(ledger_id: int, found: Found) -> str:
    return f"ledger {ledger_id} belongs to {_some(list(map(str, found.owners[ledger_id])))}"


def _more(count: int, things: str) -> str:
    return f"; and {count} more {things}" if count > 0 else ""


def _some(names: list[str]) -> str:
    return ", ".join([*names[:SHOWN_MAX], *(["…"] if len(names) > SHOWN_MAX else [])])


def check_readable(env: Env, unreadable: Unreadable, *, owned: bool) -> None:
    """Refuses if some owners are unknown; with `owned` only warns.

    Raises:
        Refused: a node cannot be decoded, and `owned` is false.
    """
    if not unreadable.count:
        return
    first = unreadable.messages[0] + _more(unreadable.count - 1, "nodes")
    if not owned:
        raise Refused(f"the owners of ledgers are unknown: {first}", hint=_HINT, nodes=unreadable.messages)
    env.warn(f"the owners of ledgers are unknown: {first}")


async def cluster_owners(env: Env, cluster: ClusterAccess, *, owned: bool) -> tuple[str, ...]:
    """The owners of all ledgers of a cluster that is to be deleted, as steps of a plan; empty without owners.

    Raises:
        Refused: there are owners, or a node cannot be decoded, and `owned` is false.
    """
    from bkctl.codec.layout import LedgerManager
    from bkctl.meta.layout import read_layout
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.meta.owners.search import owners_of_all

    if await cluster.store.exists(cluster.root) is None:
        return ()
    layout = await read_layout(cluster.store, cluster.root)
    manager = LedgerManager.HIERARCHICAL if layout is None else layout.manager
    found = await owners_of_all(LedgerStore(cluster.store, cluster.root, manager), await owner_plugins(cluster))
    total = found.ledgers.total()
    if not total:
        check_readable(env, found.unreadable, owned=owned)
        return ()
    kinds = [f"{kind} {count} ({_some(found.names[kind])})" for kind, count in sorted(found.ledgers.items())]
    text = f"{total} ledgers of {cluster.root} have an owner: {', '.join(kinds)}"
    if not owned:
        raise Refused(text, hint=_HINT, ledgers=dict(found.ledgers))
    check_readable(env, found.unreadable, owned=owned)
    return (text,)
