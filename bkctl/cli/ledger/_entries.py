"""The form of entries, shared by `read` and `tail`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final

from bkctl.cli.env import Env
from bkctl.cli.ledger._records import prefixed

if TYPE_CHECKING:
    from bkctl.model.entry import Entry

COLUMNS: Final = ("entry_id", "payload_size", "digest_ok", "payload")
WIDE: Final = ("ledger_id", "last_confirmed", "length")


def entry_items(entries: Iterable[Entry]) -> list[dict[str, object]]:
    """One item an entry; digest_ok is true because the reader has checked the digest."""
    return [
        {
            "ledger_id": entry.ledger_id,
            "entry_id": entry.entry_id,
            "last_confirmed": entry.last_confirmed,
            "length": entry.length,
            "payload_size": len(entry.payload),
            "digest_ok": True,
            "payload": entry.payload,
        }
        for entry in entries
    ]


async def write_raw(env: Env, batches: AsyncIterator[list[Entry]], *, length_prefixed: bool) -> None:
    """The payloads alone; with length_prefixed each after its i32 length."""
    out = env.raw_stdout
    async for entries in batches:
        out.write(b"".join([prefixed(e.payload) if length_prefixed else e.payload for e in entries]))
        out.flush()
