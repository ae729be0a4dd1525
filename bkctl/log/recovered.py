"""The BookKeeper ledgers of a managed ledger: created with Pulsar's marks, recovered when it is opened, deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bkctl.client.ensembles import IsolatedPlacement
from bkctl.codec.managed_ledger import CursorState, LedgerInfo, ManagedLedgerInfo, decode_cursor_state
from bkctl.errors import BadBytes, BkctlError, NoSuchEntry, NoSuchLedger, NotFound, Unavailable

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.client.writer import LedgerWriter
    from bkctl.log.node import LedgerContext, LedgerNode
    from bkctl.log.settings import LedgerSettings

APPLICATION = "pulsar"
COMPONENT = "managed-ledger"

_log = logging.getLogger(__name__)


async def create_ledger(bookkeeper: BookKeeper, settings: LedgerSettings, marks: Mapping[str, str]) -> LedgerWriter:
    """A new ledger of a managed ledger, with these marks of its kind."""
    return await create_with_marks(bookkeeper, settings, {"component": COMPONENT, **marks})


async def create_with_marks(
    bookkeeper: BookKeeper, settings: LedgerSettings, marks: Mapping[str, str | bytes]
) -> LedgerWriter:
    """A new ledger with the custom metadata that Pulsar writes."""
    racks = bookkeeper.context.racks
    if settings.groups and racks is not None:
        below = bookkeeper.context.placement
        bookkeeper = bookkeeper.placed(
            IsolatedPlacement(below, racks.groups, settings.groups, settings.secondary_groups)
        )
    return await bookkeeper.create(
        settings.ensemble_size,
        settings.write_quorum_size,
        settings.ack_quorum_size,
        settings.digest_type,
        settings.password,
        {
            key: mark if isinstance(mark, bytes) else mark.encode()
            for key, mark in {**marks, "application": APPLICATION}.items()
        },
    )


async def recovered_list(context: LedgerContext, info: ManagedLedgerInfo, settings: LedgerSettings) -> list[LedgerInfo]:
    """The ledgers of a log after its last one was fenced and recovered, without those that are empty.

    The last ledger of a terminated log stays. Java terminates a log without storing its size: then bookies are asked.

    Raises:
        Unavailable, NotEnoughBookies, …: the last ledger cannot be recovered now.
    """
    infos = list(info.ledgers)
    if infos and (info.terminated is None or infos[-1].entries is None):
        last = infos.pop()
        try:
            report = await context.recover(context.bookkeeper, last.ledger_id, settings.password, settings.digest_type)
        except NoSuchLedger:
            _log.warning("removing ledger %d from the list of a topic: its metadata does not exist", last.ledger_id)
        else:
            metadata = report.metadata
            now_ms = context.world.clock.now_ms()
            entries, size = metadata.last_entry_id + 1, metadata.length
            infos.append(replace(last, entries=entries, size=size, timestamp_ms=now_ms))
    return [one for one in infos if one.entries or (info.terminated is not None and one is infos[-1])]


async def listed_ledger(
    context: LedgerContext,
    node: LedgerNode,
    name: str,
    settings: LedgerSettings,
    known: Callable[[Sequence[LedgerInfo]], Sequence[LedgerInfo]],
) -> tuple[LedgerWriter, LedgerInfo]:
    """A new ledger which the node of a log names as its last one, after those that `known` keeps in the list.

    Raises:
        Conflict: the log has another owner; the ledger is deleted. Unavailable: the node may name it or not: it stays.
    """
    writer = await create_ledger(context.bookkeeper, settings, {"pulsar/managed-ledger": name})
    info = LedgerInfo(writer.ledger_id, timestamp_ms=0)
    try:
        await node.write(lambda old: [*known(old), info])
    except BaseException as e:
        writer.abandon()
        if isinstance(e, BkctlError) and not isinstance(e, Unavailable):
            await delete_ledger(context.bookkeeper, writer.ledger_id)
        raise
    return writer, info


async def last_state(
    context: LedgerContext, settings: LedgerSettings, name: str, cursor: str, ledger_id: int
) -> CursorState | None:
    """The last entry of a cursor's ledger; None where it is lost for good, and older messages come again.

    Each entry of a cursor's ledger is a whole state, and the last one counts; name is that of the log.
    """
    try:
        report = await context.recover(context.bookkeeper, ledger_id, settings.password, settings.digest_type)
        if report.last_entry_id < 0:
            return None
        reader = await context.bookkeeper.open(ledger_id, settings.password, settings.digest_type)
        entry = await reader.read_entry(report.last_entry_id)
        return decode_cursor_state(bytes(entry.payload), source=f"ledger {ledger_id}")
    except (NoSuchLedger, NoSuchEntry, BadBytes) as e:
        _log.warning("%s: the ledger of cursor %s is lost: %s", name, cursor, e)
        return None


async def delete_ledger(bookkeeper: BookKeeper, ledger_id: int) -> bool:
    """Deletes a ledger that no node names; returns false on failure, which leaves a logged orphan."""
    try:
        await bookkeeper.delete(ledger_id)
    except NotFound:
        pass
    except BkctlError as e:
        _log.warning("failed to delete ledger %d, which no node names: %s", ledger_id, e)
        return False
    return True
