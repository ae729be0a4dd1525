"""Findings of an inspection: stable codes, each with a severity, a next step, and a paragraph for `bkctl explain`.

A code is never reused with another meaning. BKC0xx directories, BKC1xx entry logs, BKC2xx journals, BKC3xx indexes,
BKC4xx copies and ledgers of a cluster, BKC5xx space; the codes of the audit are in bkinspect.audit_codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final

from bkctl.errors import BadBytes, NotFound
from bkinspect.audit_codes import AUDIT_CODES


@unique
class Severity(StrEnum):
    """Severity of a finding. error: data is damaged or lost here. warning: it may be. info: no action is needed."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@unique
class OnError(StrEnum):
    """How a reader handles a fault: stop at the first one, or report each and resume after it."""

    STOP = "stop"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or observation of an inspection. offset is in bytes from the start of file."""

    code: str
    severity: Severity
    subject: str
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    next: str | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    bookie_id: str | None = None
    file: str | None = None
    offset: int | None = None

    @property
    def line(self) -> str:
        """Returns the finding as one line of text."""
        where = "" if self.offset is None else f" at {self.offset:#x}"
        return f"{self.code} {self.severity}: {self.subject}{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Code:
    """A code with its severity, title, explanation and next step, as `bkctl explain` shows them."""

    code: str
    severity: Severity
    title: str
    text: str
    next: str


def found(
    code: str,
    subject: str,
    message: str,
    *,
    evidence: Mapping[str, object] | None = None,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    file: str | None = None,
    offset: int | None = None,
) -> Finding:
    """Returns a finding with the severity and next step of its code."""
    known = CODES[code]
    return Finding(
        code,
        known.severity,
        subject,
        message,
        dict(evidence or {}),
        known.next,
        ledger_id,
        entry_id,
        None,
        file,
        offset,
    )


def found_bytes(code: str, error: BadBytes, **more: object) -> Finding:
    """Returns a finding about bytes that could not be decoded; more is added to its evidence."""
    evidence = {"expected": error.details["expected"], "found": error.details["found"], **more}
    return found(code, error.source, error.what, evidence=evidence, file=error.source, offset=error.offset)


def explain(code: str) -> Code:
    """Returns the explanation of a code, in any case of letters.

    Raises:
        NotFound: the code does not exist.
    """
    known = CODES.get(code.upper())
    if known is None:
        raise NotFound(f"there is no finding with the code {code}", hint="codes look like BKC103")
    return known


_I, _W, _E = Severity.INFO, Severity.WARNING, Severity.ERROR

_ALL: Final = (
    Code(
        "BKC001",
        _E,
        "a cookie cannot be read",
        "Every journal, ledger and index directory of a bookie holds a file VERSION, the cookie, which says whose "
        "directory it is. A bookie whose cookie cannot be read refuses to start.",
        "compare with the cookies of the other directories and of the metadata store (bkctl bookie cookie get)",
    ),
    Code(
        "BKC002",
        _E,
        "directories have different cookies",
        "All directories of one bookie hold the same cookie, byte for byte. Different ones mean that directories of "
        "several bookies, or of several configurations, were mixed. A bookie refuses to start on them.",
        "look at the paths inside the cookies: they name the directories that belong together",
    ),
    Code(
        "BKC003",
        _W,
        "a lastMark is cut short",
        "lastMark says up to where in the journal the ledger storage holds everything. Java rewrites it in place, so "
        "a crash can leave it short or empty. The bookie then takes the mark of another ledger directory, or replays "
        "every journal that is left: slower, but nothing is lost by it.",
        "nothing: the next checkpoint writes it again",
    ),
    Code(
        "BKC004",
        _W,
        "lastId cannot be read",
        "lastId holds the number of the newest entry log in hexadecimal. Without it the bookie looks at the names of "
        "the log files.",
        "nothing: it is written again when the next log is made",
    ),
    Code(
        "BKC005",
        _I,
        "the bookie runs, or did not stop cleanly",
        "The file DIRTY is there while a bookie runs and after a crash. After a crash the journal holds entries that "
        "the ledger storage does not: start the bookie and let it replay before anything else is done with the files.",
        "if the bookie is not running, start it and stop it cleanly",
    ),
    Code(
        "BKC006",
        _W,
        "BOOKIE_STATUS cannot be read",
        "The file keeps over restarts whether the bookie was read-only, and whether a person wanted it so. A bookie "
        "that cannot read it starts writable.",
        "set the mode again once the bookie runs",
    ),
    Code(
        "BKC007",
        _E,
        "a directory has no cookie",
        "Every directory of a bookie holds its cookie. Here one directory has none although others of the same bookie "
        "do: an empty or a wrong disk was mounted there, or the file was deleted. A bookie refuses to start on it.",
        "look what is mounted there; a directory that lost its data is re-replicated, not stamped again",
    ),
    Code(
        "BKC008",
        _W,
        "lastId is behind the entry logs",
        "lastId names the newest entry log. A lower number than that of a log which is there would lead the bookie to "
        "numbers that are taken; it passes over names that exist, but the file was not written by this bookie last.",
        "nothing, unless files of several bookies were mixed: compare the cookies",
    ),
    Code(
        "BKC101",
        _E,
        "the header of an entry log is damaged",
        "An entry log starts with 1024 bytes: the letters BKLO, a format number, where the ledgers map is. Without "
        "them no bookie uses the file, though its frames may be sound: scanning with --on-error resume reads them.",
        "bkctl entrylog scan --on-error resume FILE shows what can still be read",
    ),
    Code(
        "BKC102",
        _W,
        "the last frame of an entry log is cut short",
        "The file ends inside a frame. A crash does this to the log that was being written: the entries behind the "
        "cut are replayed from the journal when the bookie starts. In a log that was closed, or whose journal is "
        "gone, the cut entry is lost on this bookie.",
        "start the bookie if it crashed; otherwise re-replicate the ledgers of this log",
    ),
    Code(
        "BKC103",
        _E,
        "bytes in an entry log that are no frame",
        "Frames follow each other without gaps, but for the fill of the direct-I/O logger. Here a size is impossible, "
        "so everything up to the next frame that makes sense was passed over. Entries in between cannot be read by a "
        "scan; the index may still point to some of them. Compaction of this log stops here in Java.",
        "re-replicate the ledgers of this log from the other bookies, then remove the log",
    ),
    Code(
        "BKC104",
        _I,
        "an entry log was never closed",
        "The log has no ledgers map although newer logs exist. A log that was active when the bookie stopped stays "
        "like that for ever; the bookie scans it instead of reading its map.",
        "nothing",
    ),
    Code(
        "BKC105",
        _W,
        "the ledgers map of an entry log cannot be trusted",
        "A closed log ends with a map from ledgers to bytes, and its header says where. This one is damaged, cut or "
        "has another number of ledgers than the header says. Bookies then scan the log; nothing is lost by it.",
        "nothing, but find the reason if no person copied the file",
    ),
    Code(
        "BKC106",
        _E,
        "the ledgers map does not fit the frames",
        "The bytes that the map gives to a ledger are not those of its frames. Garbage collection decides by the map: "
        "a ledger that is missing in it can be deleted with the log while it is still alive.",
        "do not compact this bookie; re-replicate the ledgers of this log",
    ),
    Code(
        "BKC107",
        _E,
        "an entry is not what its writer sealed",
        "The digest over ids and payload does not fit: bytes changed after the client had written them, on the way or "
        "on this disk. Readers reject the entry and take another replica.",
        "check the disk; re-replicate the ledger from the other bookies",
    ),
    Code(
        "BKC108",
        _E,
        "a frame with impossible ids",
        "Ledger and entry ids of entries are never negative; only the ledgers map (-1, -2) and the direct-I/O filler "
        "have such ids. Garbage collection of Java stops at such frames.",
        "re-replicate the ledgers of this log, then remove it",
    ),
    Code(
        "BKC109",
        _W,
        "an entry that contradicts itself",
        "An entry carries the last add confirmed of its writer, which is lower than its own id, and the length of the "
        "ledger up to it, which is not negative. This one does not, so it was damaged or is no client's entry.",
        "read the entry from the other bookies and compare",
    ),
    Code(
        "BKC110",
        _I,
        "a compaction was interrupted",
        "A file *.log.compacting or *.log.<id>.compacted is left of a transactional compaction. The bookie deletes "
        "the first and finishes the second at its next garbage collection; the log it replaces is still there.",
        "nothing; do not delete it",
    ),
    Code(
        "BKC201",
        _E,
        "the header of a journal is damaged",
        "A journal starts with the letters BKLG and a version from 1 to 6. A bookie that finds another version, or "
        "a header cut short, in a journal it has to replay refuses to start.",
        "if lastMark is behind this journal it is no longer needed; otherwise recover its ledgers from other bookies",
    ),
    Code(
        "BKC202",
        _W,
        "the last record of a journal is cut short",
        "The file ends inside a record. What a crash leaves in the last journal: the record was never acknowledged, "
        "replay stops before it. In an older journal it means that the file was truncated or copied incompletely.",
        "nothing, if it is the newest journal",
    ),
    Code(
        "BKC203",
        _E,
        "bytes in a journal that are no record",
        "A size is impossible, or a record of a kind that this version does not have. Replay stops here and a Java "
        "bookie refuses to start, unless skipReplayJournalInvalidRecord is set, which loses what follows.",
        "bkctl journal read --on-error resume FILE shows what follows; recover its ledgers from other bookies",
    ),
    Code(
        "BKC204",
        _E,
        "an entry in a journal is not what its writer sealed",
        "The digest does not fit. Journal records have no checksum of their own, so a write that was torn in the "
        "middle, or a bad disk, shows only here; replay would put the damaged entry into the ledger storage.",
        "check the disk; re-replicate the ledger from the other bookies",
    ),
    Code(
        "BKC205",
        _W,
        "data behind the end of a journal",
        "A journal's data ends in zeros. Behind zeros there is data again: a write reached the disk before an earlier "
        "one did, as in a crash, or something else wrote into the file. Replay ends at the zeros.",
        "nothing, if the bookie crashed: what was not in order was not acknowledged",
    ),
    Code(
        "BKC206",
        _E,
        "the journal that lastMark names is gone",
        "A bookie refuses to start if the journal named by its lastMark does not exist: entries may be missing.",
        "look for the file in other journal directories; otherwise re-replicate the bookie",
    ),
    Code(
        "BKC207",
        _W,
        "lastMark points where no record starts",
        "The mark is behind the data of its journal, or inside a record. Replay from there reads nonsense or nothing.",
        "bkctl journal read FILE shows where records start",
    ),
    Code(
        "BKC208",
        _W,
        "a journal record of an unknown kind",
        "The entry id is negative and none of the known marks. Java passes over such a record with a warning.",
        "nothing, unless a newer BookKeeper wrote it",
    ),
    Code(
        "BKC301",
        _E,
        "a row of an index cannot be decoded",
        "The index of a bookie has rows of fixed form. A bookie stops at such a row when it starts, or fails to read "
        "the entry.",
        "rebuild the index from the entry logs: bkctl index rebuild -c CONF",
    ),
    Code(
        "BKC302",
        _E,
        "an index cannot be read",
        "RocksDB refuses the database (a checksum does not fit, a file is missing or cut short), an .idx file has no "
        "header that makes sense, or there is no index where entry logs are. The bookie does not start, or fails on "
        "the ledgers of that file.",
        "check the disk; bkctl index rebuild -c CONF, or re-replicate the bookie",
    ),
    Code(
        "BKC303",
        _E,
        "a row of the index has no entry",
        "The index says where an entry lies: in which log, at which offset. There the log is gone, too short, or "
        "holds another entry, and no journal has it for replay. Reads of this entry fail on this bookie.",
        "re-replicate the ledger from the other bookies",
    ),
    Code(
        "BKC304",
        _E,
        "an entry is in no index",
        "The entry lies in a log and the bookie has its ledger, but the index has no row for it, nor will the journal "
        "be replayed for it. Readers get the answer that the entry does not exist, which recovery may trust.",
        "bkctl index rebuild -c CONF, or re-replicate the ledger, before the bookie serves again",
    ),
    Code(
        "BKC305",
        _W,
        "rows of a ledger that is gone",
        "The index still has rows of a ledger that the bookie does not know any more. A crash between the two steps "
        "of a deletion leaves them, and then they do no harm; if the ledger still exists in the cluster, the bookie "
        "has forgotten it, and with it that it was fenced.",
        "bkctl ledger show LEDGER: if it exists, re-replicate it from the other bookies",
    ),
    Code(
        "BKC306",
        _E,
        "an acknowledged entry was not stored",
        "A journal that is still there holds the entry, and lastMark says that everything up to behind it is in the "
        "ledger storage; yet no index has it. The bookie will not replay it: what it has acknowledged is lost here.",
        "re-replicate the ledger from the other bookies; keep the journal until that is done",
    ),
    Code(
        "BKC307",
        _E,
        "two master keys of one ledger",
        "The key that a ledger was created with is in the journal and in the index, and never changes. Here they "
        "differ: one was damaged. The bookie refuses adds and fences of clients that have the other one.",
        "re-replicate the ledger from the other bookies",
    ),
    Code(
        "BKC308",
        _E,
        "an index is older than the entry logs",
        "Beside the entry logs, bkctl.index names the databases of the index and how far each had come at the last "
        "flush. A database that has not come as far is an older copy, or an empty one; or a rebuild of the index was "
        "interrupted. A bookie would not find entries that it has acknowledged: it refuses to start.",
        "bkctl index rebuild -c CONF",
    ),
    *(Code(code, Severity(severity), title, text, step) for code, severity, title, text, step in AUDIT_CODES),
)
CODES: Final[dict[str, Code]] = {code.code: code for code in _ALL}
