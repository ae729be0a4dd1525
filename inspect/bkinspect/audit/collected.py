"""Reads the facts that collectors wrote: a folder per bookie, in it a folder per day with files and a manifest.

    URI/bookie=ID/date=YYYY-MM-DD/manifest.json                  written last
    URI/bookie=ID/date=YYYY-MM-DD/scan-<ms>/0.parquet …          and index, bookie_ledgers, damage, unknown_ledgers

The bookie's ID is percent-encoded. A manifest may name files of earlier days. It is valid only if every file that it
names exists with its size; files that no valid manifest names were left by killed runs and are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bkctl.codec.data_dir import decode_cookie
from bkctl.errors import BadBytes, NotFound
from bkinspect.audit.schemas import BOOKIE_LEDGERS, DAMAGE, INDEX, Column, Table
from bkinspect.audit.sources.directories import BookieDirs
from bkinspect.audit.sources.scan import SCAN
from bkinspect.audit.storage import Storage

FORMAT: Final = 1
"""The format of manifests, increased when the meaning of facts changes: manifests of other formats are ignored."""
MANIFEST: Final = "manifest.json"
MANIFESTS_KEPT_MAX: Final = 7
"""Manifests of a bookie that are kept; the next collector removes older ones and the files that only they name."""
UNKNOWN_LEDGERS: Final = Table(
    "unknown_ledgers",
    "One row a ledger on the bookie that the metadata read by its collector did not have.",
    (Column("bookie_id", "string", ""), Column("ledger_id", "bigint", "")),
)
COLLECTED: Final = {table.name: table for table in (SCAN, INDEX, BOOKIE_LEDGERS, DAMAGE, UNKNOWN_LEDGERS)}
_BOOKIE: Final = "bookie="
_OWN: Final = re.compile(
    rf"date=\d{{4}}-\d\d-\d\d/(?:{re.escape(MANIFEST)}(?:\.new)?|(?:{'|'.join(COLLECTED)})-\d+/\d+\.parquet)"
)
"""Matches the paths, below a bookie's folder, of files that collectors write: no other file is ever removed."""


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file. path: below the bookie's folder; files: the entry logs and journals in it, 0 of other tables."""

    table: str
    path: str
    size: int
    rows: int
    files: int


@dataclass(frozen=True, slots=True)
class ReadFile:
    """An entry log or journal that was read.

    part: the path of the Parquet file with its rows. good, bad, unknown: entries by what their digest says.
    unproven: ledgers with entries whose digest did not fit or could not be checked, and whose digest type and password
    were not known; None for too many to list.
    """

    file: str
    fingerprint: str
    part: str
    size: int
    good: int
    bad: int
    unknown: int
    unproven: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one run of a collector: the files that it read and the Parquet files with their rows.

    running: a bookie ran on the directories. with_metadata: digest types and passwords came from metadata; without it
    digests were checked with the empty password where possible. digests: entries by good, bad, unknown.
    """

    bookie_id: str
    instance_id: str | None
    started_ms: int
    ended_ms: int
    running: bool
    with_metadata: bool
    cookie: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...]
    digests: Mapping[str, int]
    files: tuple[ReadFile, ...]
    parts: tuple[Part, ...]
    format: int = FORMAT

    @property
    def bookie(self) -> BookieDirs:
        """The directories of the bookie, as the collector found them."""
        cookie = decode_cookie(self.cookie.encode(), source=f"cookie of {self.bookie_id}")
        folders = (tuple(map(Path, names)) for names in (self.journal_dirs, self.ledger_dirs, self.index_dirs))
        return BookieDirs(self.bookie_id, cookie, self.cookie, *folders)

    def parts_of(self, table: str) -> list[Part]:
        """Returns the Parquet files of a table."""
        return [part for part in self.parts if part.table == table]

    def encode(self) -> bytes:
        """Returns the manifest as JSON."""
        return json.dumps(asdict(self), indent=1).encode()


@dataclass(frozen=True, slots=True)
class BookieFacts:
    """The content of a bookie's folder.

    manifests: the complete ones, newest first, at most MANIFESTS_KEPT_MAX. incomplete: path of any other manifest → why
    it is not valid. unreferenced: files of collectors other than `manifests` and the files that these name; none where
    a manifest has another format, which may name any file.
    """

    manifests: list[Manifest] = field(default_factory=list)
    incomplete: dict[str, str] = field(default_factory=dict)
    unreferenced: list[str] = field(default_factory=list)


def bookie_folder(bookie_id: str) -> str:
    """Returns the name of a bookie's folder."""
    return _BOOKIE + quote(bookie_id, safe="")


def bookie_facts(folder: Storage) -> BookieFacts:
    """Reads the manifests in a bookie's folder; returns an empty result where the bookie was never collected."""
    sizes = folder.files()
    found = BookieFacts()
    complete: list[tuple[str, Manifest]] = []
    foreign = False
    for name in sorted(name for name in sizes if name.endswith(f"/{MANIFEST}")):
        try:
            about = json.loads(folder.read(name))
            if about["format"] != FORMAT:
                foreign = True
                found.incomplete[name] = f"its format is {about['format']}, expected {FORMAT}"
                continue
            manifest = _manifest(about)
        except FileNotFoundError:
            found.incomplete[name] = "it was removed meanwhile"
            continue
        except (ValueError, TypeError, KeyError) as error:
            found.incomplete[name] = f"it is not a manifest: {error!r}"
            continue
        lost = next((part.path for part in manifest.parts if sizes.get(part.path) != part.size), None)
        if lost is not None:
            found.incomplete[name] = f"{lost} is missing or has another size"
            continue
        complete.append((name, manifest))
    complete.sort(key=lambda one: one[1].started_ms, reverse=True)
    del complete[MANIFESTS_KEPT_MAX:]
    found.manifests.extend(manifest for _, manifest in complete)
    used = {path for name, manifest in complete for path in (name, *(part.path for part in manifest.parts))}
    if not foreign:  # a manifest of another format may name any of them
        found.unreferenced.extend(sorted(name for name in sizes if name not in used and _OWN.fullmatch(name)))
    return found


def newest_manifests(storage: Storage) -> tuple[list[tuple[str, Manifest]], list[str]]:
    """Returns (folder name, newest complete manifest) of each bookie, and notes about incomplete manifests.

    Raises:
        NotFound: the folder does not exist, or no bookie has a complete manifest.
    """
    found: list[tuple[str, Manifest]] = []
    notes: list[str] = []
    if not storage.exists():
        raise NotFound(f"folder {storage} does not exist")
    for folder in storage.list():
        if not folder.is_dir or not folder.name.startswith(_BOOKIE):
            continue
        place = storage / folder.name
        facts = bookie_facts(place)
        notes += [f"ignoring {place / name}: {why}" for name, why in facts.incomplete.items()]
        if facts.manifests:
            found.append((folder.name, facts.manifests[0]))
        else:
            notes.append(f"{place} has no complete manifest: the bookie counts as not scanned")
    if not found:
        raise NotFound(f"no bookie was collected to {storage}", hint="bkctl audit collect --to")
    return found, notes


def _manifest(about: Any) -> Manifest:
    """Returns the manifest that a JSON object describes.

    Raises:
        TypeError, KeyError, ValueError: the object does not describe a manifest.
    """
    files = tuple(
        ReadFile(**{**one, "unproven": None if one["unproven"] is None else tuple(one["unproven"])})
        for one in about["files"]
    )
    parts = tuple(Part(**one) for one in about["parts"])
    folders = {name: tuple(about[name]) for name in ("journal_dirs", "ledger_dirs", "index_dirs")}
    manifest = Manifest(**{**about, **folders, "files": files, "parts": parts})
    try:
        decode_cookie(manifest.cookie.encode(), source=f"cookie of {manifest.bookie_id}")
    except BadBytes as error:
        raise ValueError(str(error)) from error
    return manifest
