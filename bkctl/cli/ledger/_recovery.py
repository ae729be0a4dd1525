"""Shared by `recover` and `fence`: the plan, the password, one report an item; and the items of `--explain`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bkctl.cli.command import Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._client import check_digest, password_of
from bkctl.cli.ledger._items import is_one, records_of, some_failed
from bkctl.errors import BkctlError, Exit, NotFound, Refused
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkrecovery.explain import Explanation
    from bkrecovery.ledger import RecoveryReport

    from bkctl.cli.access import ClusterAccess
    from bkctl.meta.ledgers import LedgerRecord
    from bkctl.model.ledger import DigestType


EXPLAIN_COLUMNS: Final = (
    "ledger_id",
    "state",
    "can_recover",
    "could_lose",
    "closes_at",
    "waits_for",
    "verdict",
    "next",
)
EXPLAIN_WIDE: Final = ("last_confirmed_found", "fencing_covered", "end_entry_id", "end_answers", "holes", "bookies")


class Planner(Protocol):
    """Describes a recovery as a plan."""

    def __call__(self, records: list[LedgerRecord], lost: list[BookieId], verdicts: dict[int, str]) -> Plan:
        """The plan."""


async def recover_each(
    env: Env,
    names: Sequence[str],
    password: str | None,
    password_file: Path | None,
    plan: Planner,
    recover: Callable[..., Awaitable[RecoveryReport]],
    lost: Sequence[BookieId] = (),
    digest: DigestType | None = None,
) -> object:
    """Plans, confirms, then recovers the named ledgers one after another; a failure of one of several is a warning."""
    async with env.cluster() as cluster:
        records = [record async for record in records_of(env, await cluster.ledgers(), names)]
        given = password_of(env, password, password_file)
        for record in records:
            check_digest(digest, record.metadata, record.ledger_id)
        verdicts = await _verdicts(cluster, records, given, lost, digest) if lost else {}
        if records:
            env.confirm(plan(records, list(lost), verdicts))
        how: dict[str, Any] = {"digest_type": digest} | ({"lost": frozenset(lost)} if lost else {})
        items = await _recover(env, cluster, names, records, given, recover, how)
    return items[0] if is_one(names) else items


async def _verdicts(
    cluster: ClusterAccess,
    records: list[LedgerRecord],
    given: bytes,
    lost: Sequence[BookieId],
    digest: DigestType | None,
) -> dict[int, str]:
    """The possible data loss of --declare-lost, by ledger.

    Raises:
        NotFound: no ledger names one of the bookies. Refused: a bookie is registered, thus not lost.
    """
    from bkrecovery.explain import explain_recovery

    named = {b for record in records for ensemble in record.metadata.ensembles for b in ensemble.bookies}
    for bookie in sorted(set(lost) - named):
        ids = ", ".join(str(record.ledger_id) for record in records)
        raise NotFound(f"ledger {ids} does not name bookie {bookie}", bookie_id=bookie)
    registered = await cluster.bookies.registered()
    alive = sorted(set(lost) & (registered.writable | registered.read_only))
    if alive:
        raise Refused(
            f"bookie {', '.join(alive)} is registered, so it is not lost",
            hint="stop it permanently before you declare it lost",
        )
    verdicts: dict[int, str] = {}
    async with cluster.bookkeeper() as client:
        for record in records:
            password = given or record.metadata.password or b""
            verdicts[record.ledger_id] = (
                await explain_recovery(client, record.ledger_id, password, frozenset(lost), digest)
            ).verdict
    return verdicts


async def _recover(
    env: Env,
    cluster: ClusterAccess,
    names: Sequence[str],
    records: list[LedgerRecord],
    password: bytes,
    recover: Callable[..., Awaitable[RecoveryReport]],
    how: dict[str, Any],
) -> list[dict[str, object]]:
    items = []
    async with cluster.bookkeeper() as client:
        for record in records:
            try:
                # Whoever may fence can read the metadata, and an operator has no other source of the password.
                key = password or record.metadata.password or b""
                items.append(report_item(await recover(client, record.ledger_id, key, **how)))
            except BkctlError as error:
                if is_one(names):
                    raise
                some_failed(env, error)
    return items


async def explain_each(
    env: Env,
    names: Sequence[str],
    password: str | None,
    password_file: Path | None,
    lost: Sequence[BookieId],
    digest: DigestType | None = None,
) -> object:
    """Explains the recovery of each ledger; exit 1 if one would have to wait or could lose entries."""
    from bkrecovery.explain import explain_recovery

    env.command = replace(env.command, effect=Effect.READS, columns=EXPLAIN_COLUMNS, wide=EXPLAIN_WIDE)
    items: list[dict[str, object]] = []
    given = password_of(env, password, password_file)
    async with env.cluster() as cluster, cluster.bookkeeper() as client:
        async for record in records_of(env, await cluster.ledgers(), names):
            check_digest(digest, record.metadata, record.ledger_id)
            key = given or record.metadata.password or b""
            found = await explain_recovery(client, record.ledger_id, key, frozenset(lost), digest)
            items.append(explanation_item(found))
            if found.could_lose or found.holes or not found.can_recover:
                env.exit = Exit.FINDINGS
    return items[0] if is_one(names) else items


def explanation_item(found: Explanation) -> dict[str, object]:
    """One explanation as an item."""
    return {
        "ledger_id": found.ledger_id,
        "state_before": found.state,
        "state": found.state,
        "verdict": found.verdict,
        "next": found.next,
        "can_recover": found.can_recover,
        "could_lose": found.could_lose,
        "closes_at": found.closes_at,
        "waits_for": found.waits_for,
        "ensemble_size": found.ensemble_size,
        "write_quorum_size": found.write_quorum_size,
        "ack_quorum_size": found.ack_quorum_size,
        "first_entry_id": found.first_entry_id,
        "last_confirmed_found": found.last_confirmed_found,
        "fencing_covered": found.fencing_covered,
        "end_entry_id": found.end_entry_id,
        "end_answers": found.end_answers,
        "left_over": found.left_over,
        "holes": found.holes,
        "bookies": [
            {
                "bookie_id": a.bookie,
                "registered": a.registered,
                "answer": a.answer,
                "last_entry_id": a.last_entry_id,
                "last_confirmed": a.last_confirmed,
                "explicit_lac": a.explicit_lac,
                "entries_beyond": a.beyond,
            }
            for a in found.bookies
        ],
    }


def report_item(report: RecoveryReport) -> dict[str, object]:
    """One recovery as an item, with the replies of the bookies."""
    metadata = report.metadata
    return {
        "ledger_id": report.ledger_id,
        "state_before": report.state_before,
        "state": metadata.state,
        "last_entry_id": metadata.last_entry_id if metadata.closed else None,
        "length": metadata.length if metadata.closed else None,
        "closed_by_us": report.closed_by_us,
        "last_confirmed_found": report.last_confirmed_found
        if report.fencing
        else None,  # A closed ledger: its bookies are not contacted.
        "entries_written_back": report.entries_written_back,
        "fencing_answers": report.fencing,
        "end_answers": report.end,
        "ensembles_changed": [
            {"first_entry_id": first, "bookies": bookies} for first, bookies in report.ensembles_changed
        ],
    }
