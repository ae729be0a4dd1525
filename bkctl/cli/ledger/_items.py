"""The form of ledgers and fragments, shared by the verbs of `ledger`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.errors import BadBytes, BkctlError, Exit, NotFound, UsageError
from bkctl.model.ids import NO_ENTRY, LedgerId
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkctl.model.placement import write_set

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerRecord, LedgerStore

Ledgers = Annotated[list[str], typer.Argument(metavar="LEDGER…", help="ledger ids: 5, 0x5, - for stdin, @file")]
Ledger = Annotated[str, typer.Argument(metavar="LEDGER", help="ledger id: 5, 0x5")]

_DIGEST_WORDS: Final = {
    DigestType.CRC32: "CRC32",
    DigestType.HMAC: "MAC",
    DigestType.CRC32C: "CRC32C",
    DigestType.DUMMY: "DUMMY",
}


def digest_word(digest: DigestType | None) -> str | None:
    """The digest's name in BookKeeper's client and tools."""
    return None if digest is None else _DIGEST_WORDS[digest]


def parse_digest(word: str) -> DigestType:
    """The digest with this name; HMAC is an alias of MAC.

    Raises:
        UsageError: not a valid digest type.
    """
    wanted = {"HMAC": "MAC"}.get(word.upper(), word.upper())
    for digest, name in _DIGEST_WORDS.items():
        if name == wanted:
            return digest
    raise UsageError(f"{word!r} is not a valid digest type", hint=", ".join(_DIGEST_WORDS.values()))


def ledger_item(record: LedgerRecord, *, show_password: bool = False) -> dict[str, object]:
    """One ledger, from its metadata."""
    metadata = record.metadata
    closed = metadata.closed
    return {
        "ledger_id": record.ledger_id,
        "state": metadata.state,
        "format_version": metadata.format_version,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum_size": metadata.write_quorum_size,
        "ack_quorum_size": metadata.ack_quorum_size,
        "digest_type": digest_word(metadata.digest_type),
        "password": metadata.password if show_password else None,
        "length": metadata.length if closed else None,
        "last_entry_id": metadata.last_entry_id if closed else None,
        **moment("ctime", record.ctime_ms),
        "custom_metadata": metadata.custom_metadata,
        "ensembles": [{"first_entry_id": e.first_entry_id, "bookies": e.bookies} for e in metadata.ensembles],
        "metadata_version": record.version,
    }


def fragment_items(ledger_id: LedgerId, metadata: LedgerMetadata) -> list[dict[str, object]]:
    """One item a fragment. last_entry_id is null while the fragment is open; below first_entry_id if it is empty."""
    items: list[dict[str, object]] = []
    ends = [e.first_entry_id - 1 for e in metadata.ensembles[1:]]
    ends.append(metadata.last_entry_id if metadata.closed else NO_ENTRY - 1)
    for index, (ensemble, end) in enumerate(zip(metadata.ensembles, ends, strict=True)):
        last = end if metadata.closed or index < len(metadata.ensembles) - 1 else None
        items.append(
            {
                "ledger_id": ledger_id,
                "fragment": index,
                "first_entry_id": ensemble.first_entry_id,
                "last_entry_id": last,
                "entries": None if last is None else max(last - ensemble.first_entry_id + 1, 0),
                "bookies": ensemble.bookies,
            }
        )
    return items


def holders(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """The bookies of an entry's write set, in the order of reads."""
    ensemble = metadata.ensemble_of(entry_id)
    indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
    return [ensemble.bookies[index] for index in indexes]


def check_entry(metadata: LedgerMetadata, ledger_id: int, entry_id: int) -> None:
    """Checks that the ledger can have this entry.

    Raises:
        UsageError: negative. NotFound: after the end of a closed ledger.
    """
    if entry_id < 0:
        raise UsageError(f"entry id {entry_id} is negative")
    if metadata.closed and entry_id > metadata.last_entry_id:
        raise NotFound(f"ledger {ledger_id} ends at entry {metadata.last_entry_id}", ledger_id=ledger_id)


def is_one(names: Sequence[str]) -> bool:
    """True if the command line names exactly one object: the output is an item then, else a list."""
    return len(names) == 1 and names[0] != "-" and not names[0].startswith("@")


async def records_of(env: Env, ledgers: LedgerStore, names: Sequence[str]) -> AsyncIterator[LedgerRecord]:
    """The records of the named ledgers; a failure is a warning if several are named."""
    for ledger_id in env.ledger_ids(names):
        try:
            yield await ledgers.read_record(ledger_id)
        except (NotFound, BadBytes) as error:
            if is_one(names):
                raise
            some_failed(env, error)


def some_failed(env: Env, error: BkctlError) -> None:
    """Warns that one of several items failed; the command continues and exits with 1."""
    env.warn(error.message)
    env.exit = Exit.FINDINGS
