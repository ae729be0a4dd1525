"""Whole audits of golden directories: what is read, kept, found again, and told without Spark.

Checks have tests of their own; here they only have to run. The runs are made once and looked at by many tests.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Outcome, Request, run
from bkinspect.audit.results import difference, find_run, opened
from bkinspect.audit.schemas import TABLES
from bkinspect.audit.session import FILTERS, register
from bkinspect.audit.sources.base import Selection

from bkctl.codec.ledger_metadata import decode_metadata, encode_metadata
from bkctl.errors import NotFound, UsageError
from bkctl.model.ledger import DigestType
from tests.command_line import bkctl
from tests.golden import FOLDER, Golden

ZK_TREE = str(FOLDER / "zk_tree.json")
CHECKS = ("digests", "space")
pytestmark = pytest.mark.slow


class Runs(NamedTuple):
    """An audit of one bookie's directories, and one after a byte was changed, in a folder beside."""

    folder: Path
    first: Outcome
    damaged: Path
    second: Outcome


@pytest.fixture(scope="module")
def runs(spark: Any, golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    base = tmp_path_factory.mktemp("audits")
    bookie = golden.unpack("bookie0", tmp_path_factory.mktemp("dirs") / "bookie0")
    sources = Sources(ZK_TREE, (bookie,))
    first = run(spark, Request(sources, base / "sound", CHECKS))
    change_a_byte(bookie / "ledgers/current/0.log")
    second = run(spark, Request(sources, base / "damaged", CHECKS))
    return Runs(base / "sound", first, base / "damaged", second)


def change_a_byte(log: Path) -> None:
    """Of the payload of an entry of ledger 3, which is sealed with CRC32C."""
    data = bytearray(log.read_bytes())
    at = data.find(b"l3e")
    data[at] ^= 1
    log.write_bytes(data)


def test_nothing_is_read_twice(runs: Runs) -> None:
    assert (runs.first.files_read, runs.first.files_kept) == (7, 0)
    assert (runs.second.files_read, runs.second.files_kept) == (1, 6), "only the log that changed"


def test_a_run_is_readable_by_its_owner_only(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        run(spark, Request(Sources(ZK_TREE, (bookie,)), folder, CHECKS))
        assert os.umask(0o022) == 0o022, "restored"
    finally:
        os.umask(before)
    open_to_others = [str(path) for path in folder.rglob("*") if path.stat().st_mode & 0o077]
    assert any(folder.rglob("*.parquet"))
    assert open_to_others == []


def test_one_changed_byte_is_one_finding(runs: Runs) -> None:
    assert runs.first.counts == {}
    assert sum(runs.second.counts.values()) == 1
    with opened(runs.damaged) as results:
        (item,) = results.findings()
    assert item["ledger_id"] == 3
    assert str(item["file"]).endswith("ledgers/current/0.log")
    assert isinstance(item["offset"], int)
    assert isinstance(item["evidence"], dict)


def test_tables_without_spark(runs: Runs) -> None:
    with opened(runs.folder) as results:
        counts = {name: results.count(name) for name in TABLES}
        states = {
            row["state"] for row in results.query("select distinct state from log_files where source = 'entry_log'")
        }
        undecided = list(results.query("select distinct e.ledger_id, l.digest_type from entries e left join ledgers l "
                                       "using (ledger_id) where digest_ok is null"))  # fmt: skip
        with pytest.raises(UsageError, match="SQL"):
            list(results.query("select nothing from nowhere"))
    assert counts["ledgers"] == 35
    assert counts["fragments"] == 36
    assert counts["entries"] == 573
    assert counts["records"] == 602
    assert counts["log_files"] == 7
    assert counts["bookies"] == 7
    assert counts["space"] > 0
    assert states == {"closed", "open", "empty"}
    assert all(row["digest_type"] in ("DUMMY", None) for row in undecided), "metadata has the passwords"
    assert list(runs.folder.glob("facts-*")) != []


class Page(HTMLParser):
    """What a browser would load, whether tags are closed, and the scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "data", "srcset")]
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_the_report_needs_nothing_else(runs: Runs) -> None:
    text = (runs.damaged / "report.html").read_text()
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == [], "all is closed"
    assert page.loads == []
    assert page.policy.startswith("default-src 'none'"), "no script of it can load anything either"
    assert page.scripts == []
    assert all(f'title="{code}"' in text for code in runs.second.counts), "findings by code"
    assert 'title="CLOSED"' in text, "ledgers by state"
    assert "<h1>1 finding</h1>" in text
    assert "<h1>Nothing was found</h1>" in (runs.folder / "report.html").read_text()


def test_runs_are_shown_compared_and_asked(runs: Runs) -> None:
    shown = bkctl("audit", "show", runs.damaged, "-o", "jsonl")
    assert shown.code == 0, shown.stderr
    (item,) = shown.rows()
    assert {"code", "severity", "subject", "message", "evidence", "next", "ledger_id", "entry_id"} <= item.keys()
    assert bkctl("audit", "show", runs.damaged, "--ledger", "4", "-o", "jsonl").rows() == []
    differ = bkctl("audit", "diff", runs.folder, runs.damaged, "-o", "jsonl")
    assert (differ.code, [row["change"] for row in differ.rows()]) == (1, ["new"])
    with opened(runs.damaged) as before, opened(runs.folder) as after:
        assert [row["change"] for row in difference(before, after)] == ["gone"]
    asked = bkctl("audit", "sql", "select count(*) as n from ledgers", "--run", runs.folder, "-o", "jsonl")
    assert asked.rows() == [{"n": 35}]
    (explained,) = bkctl("audit", "explain", runs.damaged, "-o", "jsonl").rows()
    assert explained["findings"] == 1
    assert explained["text"]
    assert find_run(runs.folder.parent) == runs.damaged, "the newest"
    with pytest.raises(NotFound):
        find_run(runs.folder / "facts-0")


def test_space_by_owner_and_reason(runs: Runs) -> None:
    with opened(runs.folder) as results:
        rows = list(results.query("select reason, sum(bytes) as n, sum(entries) as e from space group by 1"))
        (whole,) = results.query("select sum(entry_bytes) as n from log_files where source = 'entry_log'")
    sums = {row["reason"]: row["n"] for row in rows}
    assert sum(map(int, map(str, sums.values()))) == whole["n"], "every byte of an entry has a reason"
    assert "live" in sums


def test_older_ledgers_are_no_orphans_of_a_run_since(spark: Any, runs: Runs, golden: Golden, tmp_path: Path) -> None:
    sources = Sources(ZK_TREE, (golden.bookie("bookie0"),), selection=Selection(since_ms=1_900_000_000_000))
    outcome = run(spark, Request(sources, tmp_path / "since", ("orphan-ledgers", "missing-ledgers")))
    assert outcome.counts == {}
    with opened(outcome.run) as results:
        assert results.count("ledgers") == 0
        assert results.count("bookie_ledgers") > 0


def test_half_a_run_is_nothing(spark: Any, runs: Runs, golden: Golden, tmp_path: Path) -> None:
    """A driver that was killed leaves facts without run.json: they are used where whole, and nothing is reported."""
    folder = tmp_path / "killed"
    shutil.copytree(runs.folder, folder)
    (folder / "run.json").unlink()
    with pytest.raises(NotFound):
        find_run(folder)
    answer = bkctl("audit", "show", folder)
    assert answer.code == 4


def test_sources_push_ledgers_down(spark: Any, golden: Golden) -> None:
    ledgers = spark.read.format("bookkeeper.ledgers").option("metadata", ZK_TREE).load()
    chosen = ledgers.where("ledger_id between 3 and 5").select("ledger_id").collect()
    assert sorted(row.ledger_id for row in chosen) == [3, 4, 5]
    folder = str(golden.bookie("bookie0"))
    entries = spark.read.format("bookkeeper.entries").options(paths=folder, ledgers="3 5").load()
    assert {row.ledger_id for row in entries.select("ledger_id").distinct().collect()} <= {3, 5}


def test_a_session_of_somebody_else_serves_as_well(spark: Any) -> None:
    """Spark's own default refuses sources that take filters."""
    spark.conf.set(FILTERS, "false")
    register(spark)
    ledgers = spark.read.format("bookkeeper.ledgers").option("metadata", ZK_TREE).load()
    assert ledgers.where("ledger_id = 3").count() == 1


def test_ranges_that_do_not_meet_are_read_again_whole(spark: Any, tmp_path: Path) -> None:
    """A payload that holds an entry log's bytes leads the search for a range's first record astray."""
    from tests.bench.audit import make_logs

    inner = tmp_path / "inner"
    make_logs(inner, 200_000, 200)
    folder = tmp_path / "bookie"
    make_logs(folder, 1, 2000)
    log = folder / "ledgers/current/0.log"
    nest(log, (inner / "ledgers/current/0.log").read_bytes()[1024:])
    sources = Sources(None, (folder,), selection=Selection())
    sources.part_size = 50_000
    outcome = run(spark, Request(sources, tmp_path / "audit", CHECKS))
    with opened(outcome.run) as results:
        rows = list(results.query("select ledger_id, entry_id, size from entries order by 1, 2"))
    assert [(row["ledger_id"], row["entry_id"]) for row in rows] == [(7, 0), (7, 1), (7, 2)]
    assert list(outcome.run.glob("facts-*/scan-whole")) != [], "the ranges met: this log does not deceive"


def nest(log: Path, payload: bytes) -> None:
    """Makes a log of three entries, the second with this payload."""
    from bkctl.codec.checksum import digest_for
    from bkctl.codec.entry import encode_entry
    from bkctl.codec.entry_log import encode_header
    from bkctl.model.ledger import DigestType

    digest = digest_for(DigestType.CRC32C)
    bodies = [encode_entry(7, i, i - 1, 10, part, digest) for i, part in enumerate((b"a", payload, b"c"))]
    log.write_bytes(encode_header() + b"".join(len(body).to_bytes(4, "big") + body for body in bodies))


def test_what_run_json_says(runs: Runs) -> None:
    about = json.loads((runs.folder / "run.json").read_text())
    assert about["metadata"] == ZK_TREE
    assert about["checks"] == list(CHECKS)
    assert about["files_read"] == 7


def test_nothing_to_audit_is_a_usage_error() -> None:
    assert bkctl("audit", "run", "--metadata", "none").code == 2
    assert bkctl("audit", "run", "--offline", "/nowhere", "--sample", "200%").code == 2
    running = ("audit", "run", "-m", "zk+hierarchical://127.0.0.1:1/ledgers")
    for check in ("indexes", "log-records", "space"):
        answer = bkctl(*running, "--check", check)
        assert (answer.code, "no files" in answer.stderr) == (2, True), check
    assert bkctl("audit", "run", "--offline", "/nowhere").code == 4
    assert bkctl("audit", "run", "--offline", "/", "--check", "nothing").code == 4


def test_what_cannot_be_kept_is_told_before_spark_starts(golden: Golden, tmp_path: Path) -> None:
    offline = ("audit", "run", "--offline", golden.bookie("bookie0"))
    file = tmp_path / "file"
    file.touch()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "run.json").write_text('{"distance_km": 12}')
    answers = {
        "is not a directory": bkctl(*offline, "--to", file),
        "not a directory": bkctl(*offline, "--to", file / "below"),
        "not of an audit": bkctl(*offline, "--to", foreign),
        "metadata export does not exist": bkctl(
            *offline, "--metadata", tmp_path / "none.jsonl", "--to", tmp_path / "run"
        ),
    }
    assert {text: answer.code for text, answer in answers.items()} == {
        "is not a directory": 2,
        "not a directory": 2,
        "not of an audit": 3,
        "metadata export does not exist": 4,
    }
    for text, answer in answers.items():
        (line,) = answer.stderr.splitlines()
        assert text in line
    assert (foreign / "run.json").read_text() == '{"distance_km": 12}'
    assert not (tmp_path / "run").exists()


def sealed_otherwise(ledger_id: int, export: Path) -> Path:
    """The golden nodes with another digest and password of this ledger."""
    path = f'"/ledgers/00/0000/L{ledger_id:04d}"'
    lines = Path(ZK_TREE).read_text().splitlines()
    (at,) = [i for i, line in enumerate(lines) if path in line]
    row = json.loads(lines[at].rstrip(","))
    metadata = decode_metadata(base64.b64decode(row["data"]), source=path)
    other = replace(metadata, digest_type=DigestType.HMAC, password=b"another")
    row["data"] = base64.b64encode(encode_metadata(other)).decode()
    lines[at] = json.dumps(row) + ("," if lines[at].endswith(",") else "")
    export.write_text("\n".join(lines))
    return export


def test_files_are_read_again_where_metadata_judges_them_otherwise(spark: Any, runs: Runs, tmp_path: Path) -> None:
    """A digest fits or not as its kind and the password are."""
    shutil.copytree(runs.folder.parent, tmp_path / "audits")
    with opened(runs.damaged) as results:
        sql = "select min(ledger_id) as one from entries join ledgers using (ledger_id) where digest_type = 'CRC32'"
        (row,) = results.query(sql)
    ledger_id = int(str(row["one"]))
    export = sealed_otherwise(ledger_id, tmp_path / "zk_tree.json")
    bookie = Path(json.loads((runs.damaged / "run.json").read_text())["offline"][0])
    outcome = run(spark, Request(Sources(str(export), (bookie,)), tmp_path / "audits/other", ("digests",)))
    with opened(outcome.run) as results:
        found = {(item["code"], item["ledger_id"]) for item in results.findings()}
    assert found == {("BKC107", 3), ("BKC107", ledger_id), ("BKC204", ledger_id)}, "in its log and in the journal"
    assert outcome.files_read > 0
    assert outcome.files_kept > 0, "files without that ledger are not read again"


def test_directories_without_a_cookie_are_read_all_the_same(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    for cookie in bookie.glob("*/current/VERSION"):
        cookie.unlink()
    outcome = run(spark, Request(Sources(None, (bookie,)), tmp_path / "run", ("log-records",)))
    assert outcome.counts == {}, "maps are compared with the records of their own log"
    assert "no cookie says whose" in outcome.notes[0]
