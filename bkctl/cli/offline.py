"""Shared by the verbs that read a bookie's files: paths, handling of damage, digests, findings on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from bkctl.cli.env import Env
from bkctl.cli.ledger._client import Password, PasswordFile, password_of
from bkctl.cli.ledger._items import parse_digest
from bkctl.errors import Exit, NotFound, UsageError
from bkctl.model.ids import parse_ledger_id

if TYPE_CHECKING:
    from bkinspect.digests import DigestBook
    from bkinspect.entry_log import LogRow
    from bkinspect.finding import Finding, OnError
    from bkinspect.journal import JournalRow
    from bkinspect.source import Numbered

    from bkctl.codec.checksum import Digest

    _Row = TypeVar("_Row", LogRow, JournalRow)

WARNINGS_MAX: Final = 1000
"""Findings that are kept for the "warnings" of a JSON document; all of them are on stderr."""

Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH…", help="files, directories with or without current, or ids (1f.log, 0x1f, 31)"),
]
OnErrorOption = Annotated[
    str,
    typer.Option(
        "--on-error", metavar="stop|resume", help="stop at the first damage, or report it and resume after it"
    ),
]
DigestName = Annotated[
    str | None,
    typer.Option(
        "--digest", metavar="DIGEST", help="CRC32C, CRC32, MAC or DUMMY for all ledgers; default: deduced from entries"
    ),
]
WithMetadata = Annotated[
    bool, typer.Option("--with-metadata", help="read digest types and passwords from the metadata store")
]
Payload = Annotated[bool, typer.Option("--payload", help="include the payload of each entry")]
Ledger = Annotated[str | None, typer.Option("--ledger", metavar="LEDGER", help="only this ledger")]
FirstEntry = Annotated[int | None, typer.Option("--from", metavar="ENTRY", help="first entry")]
LastEntry = Annotated[int | None, typer.Option("--to", metavar="ENTRY", help="last entry")]

FINDING_COLUMNS: Final = ("code", "severity", "subject", "offset", "message")
FINDING_WIDE: Final = ("file", "ledger_id", "entry_id", "evidence", "next")

LEDGER_KEYS: Final = ("ledgerDirectories",)
JOURNAL_KEYS: Final = ("journalDirectories", "journalDirectory")
INDEX_KEYS: Final = ("indexDirectories", "ledgerDirectories")


def configured(env: Env, keys: tuple[str, ...]) -> list[Path]:
    """The directories that a configuration (-c) names under the first of these keys that it has."""
    for key in keys:
        value = env.properties.get(key)
        if value:
            return [Path(part.strip()) for part in value.split(",") if part.strip()]
    return []


def logs_of(env: Env, paths: list[str] | None) -> list[Numbered]:
    """The entry logs of PATH… or -c.

    Raises:
        NotFound: no entry log exists, so that "nothing checked" is not reported as "no damage".
    """
    from bkinspect.source import entry_logs

    found = entry_logs(paths or (), configured(env, LEDGER_KEYS))
    if not found:
        raise NotFound("no entry logs found", hint="*.log files are in the ledger directories")
    return found


def journals_of(env: Env, paths: list[str] | None) -> list[Numbered]:
    """The journals of PATH… or -c.

    Raises:
        NotFound: no journal exists.
    """
    from bkinspect.source import journals

    found = journals(paths or (), configured(env, JOURNAL_KEYS))
    if not found:
        raise NotFound("no journals found", hint="*.txn files are in the journal directories")
    return found


def with_payloads(file: Numbered, rows: Iterator[_Row], book: DigestBook) -> Iterator[dict[str, object]]:
    """The rows of one file with a payload each; without one: None, or if the size of the digest is unknown."""
    from bkinspect.source import with_bodies

    for row, body in with_bodies(file, rows):
        start = book.payload_offset(row.ledger_id) if row.kind == "entry" and row.ledger_id is not None else None
        yield {**row._asdict(), "payload": None if start is None else body[start:]}


def ledger_id_of(text: str | None) -> int | None:
    """The ledger of --ledger."""
    return None if text is None else parse_ledger_id(text)


def on_error_of(text: str) -> OnError:
    """Parses --on-error.

    Raises:
        UsageError: neither stop nor resume.
    """
    from bkinspect.finding import OnError

    try:
        return OnError(text.lower())
    except ValueError:
        raise UsageError(f"--on-error {text}", hint="stop or resume") from None


@dataclass(frozen=True, slots=True)
class Digests:
    """The options that say how the digests of entries are checked."""

    digest: DigestName = None
    password: Password = None
    password_file: PasswordFile = None
    with_metadata: WithMetadata = False

    def book(self, env: Env, files: Iterable[Numbered], ids_of: Callable[[Numbered], set[int]]) -> DigestBook:
        """How the entries in these files are checked. ids_of: the ledgers in one, to ask the metadata store about.

        Raises:
            UsageError: not a valid digest type.
        """
        from bkinspect.digests import DigestBook

        given = self.password is not None or self.password_file is not None or "BKCTL_LEDGER_PASSWORD" in env.environ
        return DigestBook(
            None if self.digest is None else parse_digest(self.digest),
            password_of(env, self.password, self.password_file) if given else None,
            _known_digests(env, set().union(*map(ids_of, files))) if self.with_metadata else None,
        )


def _known_digests(env: Env, ledger_ids: set[int]) -> dict[int, Digest]:
    """The digest types of ledgers from their metadata; ledgers without metadata are omitted."""
    import asyncio

    from bkctl.codec.checksum import digest_for

    async def ask() -> dict[int, Digest]:
        found = {}
        async with env.cluster() as cluster:
            ledgers = await cluster.ledgers()
            async for record in ledgers.read_many(sorted(ledger_ids), lambda _, error: env.note(error.message)):
                metadata = record.metadata
                if metadata.digest_type is not None:
                    found[int(record.ledger_id)] = digest_for(metadata.digest_type, metadata.password or b"")
        return found

    return asyncio.run(ask())


class Reporter:
    """Collects findings: reports them on stderr, keeps some as warnings, and sets exit code 1."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.warnings: list[str] = []

    def __call__(self, finding: Finding) -> None:
        self.judge(finding)
        self._env.note(finding.line)
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(finding.line)

    def judge(self, finding: Finding) -> Finding:
        """Sets exit code 1 for a finding of severity warning or error."""
        if finding.severity != "info":
            self._env.exit = Exit.FINDINGS
        return finding
