"""Shared by the verbs that access entries: passwords, quorums, the options of a new ledger, the claim to write."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.env import Env
from bkctl.cli.ledger._items import digest_word, parse_digest
from bkctl.errors import Refused, UsageError
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState, check_quorums

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.meta.store import Version

UNCLAIMED: Final = "bkctl-unclaimed"
"""Custom metadata of a ledger from `ledger create` that has no writer yet; the first writer removes it."""

Password = Annotated[
    str | None, typer.Option("--password", metavar="TEXT", help="the ledger's password (BKCTL_LEDGER_PASSWORD)")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="a file with the password; the line end is ignored"),
]
EnsembleSize = Annotated[int, typer.Option("--ensemble-size", metavar="E", help="bookies per ensemble")]
WriteQuorumSize = Annotated[int, typer.Option("--write-quorum-size", metavar="QW", help="copies of each entry")]
AckQuorumSize = Annotated[
    int, typer.Option("--ack-quorum-size", metavar="QA", help="copies before an entry is acknowledged")
]
DigestName = Annotated[str, typer.Option("--digest", metavar="DIGEST", help="CRC32C, CRC32, MAC, DUMMY")]
KnownDigest = Annotated[
    str | None,
    typer.Option("--digest", metavar="DIGEST", help="CRC32C, CRC32, MAC, DUMMY, if the metadata has no digest type"),
]
CustomMetadata = Annotated[
    list[str] | None, typer.Option("--custom-metadata", metavar="K=V", help="custom metadata to store; may be repeated")
]
FirstEntry = Annotated[int, typer.Option("--from", metavar="ENTRY", help="first entry")]
LastEntry = Annotated[int | None, typer.Option("--to", metavar="ENTRY", help="last entry; default: the last confirmed")]


def password_of(env: Env, text: str | None, file: Path | None) -> bytes:
    """The password of --password, --password-file or BKCTL_LEDGER_PASSWORD; default: empty.

    Raises:
        UsageError: both options are given.
    """
    if text is not None and file is not None:
        raise UsageError("--password and --password-file exclude each other")
    if file is not None:
        return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    return (env.environ.get("BKCTL_LEDGER_PASSWORD", "") if text is None else text).encode()


def digest_of(word: str | None) -> DigestType | None:
    """The digest type of --digest; None without it: detected if the metadata has none.

    Raises:
        UsageError: not a valid digest type.
    """
    return None if word is None else parse_digest(word)


def check_digest(given: DigestType | None, metadata: LedgerMetadata, ledger_id: int) -> None:
    """Checks that --digest, if given, equals the digest type in the metadata, if any.

    Raises:
        UsageError: they differ.
    """
    named = metadata.digest_type
    if given is not None and named is not None and given is not named:
        raise UsageError(
            f"--digest {digest_word(given)}: the metadata of ledger {ledger_id} names {digest_word(named)}",
            hint="omit --digest",
        )


def parse_custom_metadata(pairs: Sequence[str] | None) -> Mapping[str, bytes]:
    """`k=v` pairs; values are UTF-8.

    Raises:
        UsageError: no `=`, or a key twice.
    """
    found: dict[str, bytes] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"--custom-metadata {pair!r} is not key=value")
        if key in found:
            raise UsageError(f"--custom-metadata {key} is given twice")
        found[key] = value.encode()
    return found


def quorum_words(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> str:
    """Checks the three sizes; returns their description for a plan."""
    check_quorums(ensemble_size, write_quorum_size, ack_quorum_size)
    return f"ensemble {ensemble_size}, write quorum {write_quorum_size}, ack quorum {ack_quorum_size}"


async def claim(ledgers: LedgerStore, ledger_id: int) -> tuple[LedgerMetadata, Version]:
    """Claims a ledger from `ledger create` as its only writer, by compare-and-set.

    Raises:
        Refused: it is closed, or has or had a writer. Conflict: another writer was faster.
    """
    metadata, version = await ledgers.read(ledger_id)
    if metadata.state is not LedgerState.OPEN or UNCLAIMED not in metadata.custom_metadata:
        raise Refused(
            f"ledger {ledger_id} already has, or had, a writer ({metadata.state.name})",
            hint="a ledger has only one writer: use --new for another ledger",
        )
    kept = {key: value for key, value in metadata.custom_metadata.items() if key != UNCLAIMED}
    claimed = replace(metadata, custom_metadata=kept)
    return claimed, await ledgers.write(ledger_id, claimed, version)


def made_by() -> bytes:
    """The creator of an unclaimed ledger: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}".encode()
