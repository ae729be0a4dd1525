"""The golden data: manifests, and bookies' directories unpacked once a run, zeros as holes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from bkctl.model.placement import write_set

FOLDER = Path(__file__).resolve().parent / "data/golden"
BOOKIES = ("bookie0", "bookie1", "bookie1.killed", "bookie2", "bookie3", "bookie4", "bookie5", "bookie6")
VARIANTS = ("several_dirs", "direct_io", "log_per_ledger", "journal5_idx0", "gc_cache_transactional")
ALL = BOOKIES + VARIANTS
DIGESTS = {
    "MAC": DigestType.HMAC,
    "CRC32": DigestType.CRC32,
    "CRC32C": DigestType.CRC32C,
    "DUMMY": DigestType.DUMMY,
}


class GoldenLedger(NamedTuple):
    """A ledger of a manifest: its rows, and what its entries must hold."""

    row: dict[str, Any]

    @property
    def id(self) -> int:
        return int(self.row["ledger"])

    @property
    def digest_type(self) -> DigestType:
        return DIGESTS[self.row["digest"]]

    @property
    def password(self) -> bytes:
        return str(self.row["password"]).encode()

    @property
    def deleted(self) -> bool:
        return bool(self.row.get("deleted"))

    def payload(self, entry_id: int) -> bytes:
        """`l<l>e<e>:` repeated and cut; entry k has size sizes[k mod len(sizes)]."""
        size = self.row["sizes"][entry_id % len(self.row["sizes"])]
        text = f"l{self.id}e{entry_id}:".encode()
        return (text * (size // len(text) + 1))[:size]

    def length(self, entry_id: int) -> int:
        """The payload bytes up to and including an entry."""
        sizes = self.row["sizes"]
        rounds, rest = divmod(entry_id + 1, len(sizes))
        return int(rounds * sum(sizes) + sum(sizes[:rest]))

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata; for formats 1 and 2 decoded from the text that the manifest has."""
        row = self.row
        if "metadata_text" in row:
            text = f"BookieMetadataFormatVersion\t{row['metadata_version']}\n{row['metadata_text']}"
            return decode_metadata(text.encode(), source=f"manifest, ledger {self.id}")
        return LedgerMetadata(
            ensemble_size=row["E"],
            write_quorum_size=row["Qw"],
            ack_quorum_size=row["Qa"],
            ensembles=tuple(
                Ensemble(EntryId(e["first"]), tuple(map(BookieId, e["bookies"]))) for e in row["ensembles"]
            ),
            state=LedgerState[row["state"]],
            length=row["length"],
            last_entry_id=EntryId(row["last_entry"]),
            digest_type=self.digest_type,
            password=self.password,
        )

    def bookies_of(self, entry_id: int) -> set[str]:
        """The ids of the bookies in the write set of an entry."""
        metadata = self.metadata
        ensemble = metadata.ensemble_of(entry_id).bookies
        return {ensemble[i] for i in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)}


class Golden:
    """The golden folder, and a place where archives are unpacked when they are first asked for."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.folder = FOLDER

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The first cluster's."""
        return json.loads((FOLDER / "manifest.json").read_text())  # type: ignore[no-any-return]

    @cached_property
    def variants(self) -> dict[str, Any]:
        """The second cluster's."""
        return json.loads((FOLDER / "variants/manifest.json").read_text())  # type: ignore[no-any-return]

    def manifest_of(self, name: str) -> dict[str, Any]:
        """The manifest that a bookie belongs to."""
        return self.variants if name in VARIANTS else self.manifest

    def ledgers(self, name: str = "bookie0") -> dict[int, GoldenLedger]:
        """The ledgers of the cluster that a bookie belongs to, by id."""
        return {row["ledger"]: GoldenLedger(row) for row in self.manifest_of(name)["ledgers"]}

    def bookie_row(self, name: str) -> dict[str, Any]:
        """What the manifest says of one of ALL: archive, storage, files."""
        rows = self.manifest_of(name)["bookies"].values()
        return next(row for row in rows if Path(row["archive"]).name == f"{name}.tar.gz")

    def bookie(self, name: str) -> Path:
        """The directories of one of ALL, shared by the run: read only. Write to what `unpack` makes instead."""
        folder = self._scratch / name
        if not folder.exists():
            self.unpack(name, folder)
        return folder

    def unpack(self, name: str, folder: Path) -> Path:
        """A copy of the directories of one of ALL, for the caller alone."""
        base = FOLDER / "variants" if name in VARIANTS else FOLDER
        with tarfile.open(base / f"bookies/{name}.tar.gz") as archive:
            for member in archive:
                target = folder.joinpath(*Path(member.name).parts[1:])  # below the name of the bookie
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                source = archive.extractfile(member)
                assert source is not None, f"{member.name} in {name} is no file"
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    file.write(source.read().rstrip(b"\0"))
                    file.truncate(member.size)
        return folder

    def shell_output(self, name: str) -> str:
        """What the Java shell printed, without the first line, which is the command."""
        return (FOLDER / f"shell_output/{name}.txt").read_text().split("\n", 1)[1]


def files(folder: Path, pattern: str) -> Iterator[Path]:
    """Files below folder by pattern, in a fixed order; RocksDB's own logs are not entry logs."""
    yield from (p for p in sorted(folder.rglob(pattern)) if p.parent.name == "current" or not p.name.endswith(".log"))
