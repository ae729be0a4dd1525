"""report.html: its size, its order, what it shows of the contract and of earlier runs, and how a browser draws it."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from bkinspect.audit.report import FINDINGS_A_CODE_MAX, FINDINGS_SHOWN_MAX, REPORT, write_report
from bkinspect.audit.schemas import BOOKIES, ENTRIES, LEDGERS
from bkinspect.audit.storage import LocalStorage
from bkinspect.finding import CODES, Severity

from tests.unit.cli.audit.test_runs import FINDING
from tests.unit.inspect.audit.test_history import DAY_MS, finding, kept
from tests.unit.inspect.audit.test_metrics import table

SIZE_MAX = 1 << 20
FINDINGS = 10_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_S = 120
SOME = ("BKC401", "BKC402", "BKC411", "BKC412", "BKC406")


def many(number: int, codes: Sequence[str] = tuple(sorted(CODES))) -> list[dict[str, Any]]:
    """Findings of these codes in turn, with long texts that HTML must escape."""
    rows = []
    for i in range(number):
        code = CODES[codes[i % len(codes)]]
        path = f"/mnt/bookies/bookie{i % 7}/ledgers/current/{'long-name-' * 20}{i:x}.log"
        words = f"<b>entry</b> {i} & the {'words ' * 60}"
        rows.append(
            finding(
                code=code.code, severity=str(code.severity), subject=f"entry {i} of ledger {i}", message=words,
                ledger_id=i, entry_id=i, file=path, offset=i, first_seen_ms=DAY_MS, runs_seen=3,
            )
        )  # fmt: skip
    return rows


def text_of(folder: Path) -> str:
    assert write_report(LocalStorage.of(folder))
    return (folder / REPORT).read_text()


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums that run.json has of findings."""
    sums: dict[str, dict[str, int]] = {"counts": {}, "severities": {}}
    for name, key in (("counts", "code"), ("severities", "severity")):
        for row in rows:
            sums[name][row[key]] = sums[name].get(row[key], 0) + 1
    return sums


def test_a_report_of_many_findings_is_small_and_shows_errors_first(tmp_path: Path) -> None:
    rows = many(FINDINGS)
    kept(tmp_path / "before", 1)
    kept(tmp_path / "run", 2, *rows, **counted(rows), notes=["a note " * 100] * 500, offline=["/mnt/b"] * 1000)
    kept(tmp_path / "after", 3, offline=["/mnt/b"] * 1000)
    text = text_of(tmp_path / "run")
    assert len(text.encode()) < SIZE_MAX
    assert len(text_of(tmp_path / "after").encode()) < SIZE_MAX, "all of them are gone"
    assert "<b>entry" not in text
    sections = re.findall(r"<section><h3><span class='badge (\w+)'>\w+</span>(BKC\d+)", text)
    rank = [list(Severity)[::-1].index(Severity(severity)) for severity, _ in sections]
    assert rank == sorted(rank)
    assert [code for _, code in sections if code in CODES] == [code for _, code in sections]
    assert len(sections) == len(CODES), "each code has its section, even without rows"
    shown = text.count("<td>entry ")
    assert shown == FINDINGS_SHOWN_MAX


def test_each_code_shows_a_limited_number_of_rows(tmp_path: Path) -> None:
    rows = [finding(ledger_id=i) for i in range(FINDINGS_A_CODE_MAX + 7)]
    rows += [finding(code="BKC412", severity="warning", ledger_id=i) for i in range(3)]
    kept(tmp_path / "run", 1, *rows, **counted(rows))
    text = text_of(tmp_path / "run")
    assert text.count(f"<td>{FINDING['subject']}</td>") == FINDINGS_A_CODE_MAX + 3
    assert "7 more: <code>bkctl audit show --code BKC401</code>" in text


def test_a_report_names_the_cluster_the_verdict_and_suppressed_findings(tmp_path: Path) -> None:
    rows = [finding(), finding(ledger_id=6, suppressed="OPS-1 <deleted>", first_seen_ms=DAY_MS, runs_seen=2)]
    contract = {"fail_on": "error", "failing": {"BKC401": 1}, "allowed": {}, "suppressed": {"BKC401": 1}}
    uri = "zk+hierarchical://h1:2181/ledgers"
    kept(tmp_path / "run", 2, *rows, **counted(rows), metadata=uri, instance_id="id-1", contract=contract)
    text = text_of(tmp_path / "run")
    assert f"Cluster: <b>{uri}</b>, instance id id-1" in text
    assert "Findings that fail the run: 1 BKC401; 1 suppressed" in text
    assert "suppressed: OPS-1 &lt;deleted&gt;; since 1970-01-02, 2 runs" in text
    assert "There is no earlier run" in text
    passed = {**contract, "failing": {}, "allowed": {"BKC401": 1}}
    kept(tmp_path / "passed", 2, *rows, **counted(rows), contract=passed)
    assert "The run passes; 1 suppressed; 1 allowed" in text_of(tmp_path / "passed")


def test_a_report_shows_changes_and_a_trend_over_the_runs_beside_it(tmp_path: Path) -> None:
    first = [finding(ledger_id=1), finding(ledger_id=2, subject="gone & over")]
    kept(tmp_path / "other", 1, *first, metadata="other.jsonl", **counted(first))
    kept(tmp_path / "first", 1, *first, **counted(first), seconds=2.5)
    second = [finding(ledger_id=1), finding(ledger_id=3), finding(ledger_id=4)]
    kept(tmp_path / "second", 2, *second, **counted(second), seconds=3.5)
    text = text_of(tmp_path / "second")
    assert "Changes since 1970-01-02" in text
    assert re.search(r"<td>BKC401</td><td>[^<]*</td><td class='number'>2</td><td class='number'>1</td>", text)
    assert "<td>gone &amp; over</td>" in text
    assert text.count("<rect class='error'") == 2, "a column a run of this cluster"
    assert "<title>1970-01-02 00:00:00 UTC: 2 error, 0 warning, 0 info</title>" in text
    assert "Duration by run" in text


def full(folder: Path, runs: int) -> Path:
    """A run over running bookies after some others, for a picture."""
    for day in range(1, runs):
        rows = many(40 + 7 * (day % 5), SOME)
        kept(folder / f"run{day}", day, *rows, **counted(rows), seconds=60 + day, live_copies=True)
    rows = many(60, SOME)
    rows[0] |= {"suppressed": "OPS-1234: known since the move of the rack"}
    contract = {"failing": {"BKC401": 2}, "allowed": {"BKC411": 2}, "suppressed": {rows[0]["code"]: 1}}
    about = {"live_copies": True, "contract": contract, "instance_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
    notes = ["suppressions.toml: suppression 2 (BKC412) matches no finding"]
    metadata = "zk+hierarchical://h1:2181/ledgers"
    kept(folder / "run", runs, *rows, **counted(rows), **about, notes=notes, seconds=75.0, metadata=metadata)
    facts = folder / "run/facts-1"
    copy = {"ledger_id": 5, "bookie_id": "b1:3181", "size": 100, "source": "live", "kind": "entry"}
    checked = [True] * 900 + [None] * 100
    table(facts, ENTRIES, *({**copy, "entry_id": i, "digest_ok": ok} for i, ok in enumerate(checked)), name="copies")
    table(facts, BOOKIES, {"bookie_id": "b1:3181", "scanned": True})
    states = ["CLOSED"] * 12 + ["OPEN"] * 3
    ledgers = ({"ledger_id": i, "state": state, "length": 1000 * i} for i, state in enumerate(states))
    table(facts, LEDGERS, *ledgers)
    for day in range(1, runs):
        path = folder / f"run{day}/run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"metadata": metadata}))
    return folder / "run"


def pixels(png: bytes) -> tuple[int, int, set[bytes]]:
    """Width, height and the colors of a PNG of 8 bits a channel, as a browser writes it."""
    width, height, depth, color = struct.unpack(">IIBB", png[16:26])
    assert (depth, color) in ((8, 2), (8, 6))
    size = 3 if color == 2 else 4
    data, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    raw, colors, before = zlib.decompress(data), set(), bytes(width * size)
    for row in range(height):
        line = bytearray(raw[row * (width * size + 1) + 1 : (row + 1) * (width * size + 1)])
        _unfilter(raw[row * (width * size + 1)], line, before, size)
        colors.update(bytes(line[i : i + 3]) for i in range(0, len(line), size))
        before = bytes(line)
    return width, height, colors


def _unfilter(kind: int, line: bytearray, above: bytes, size: int) -> None:
    for i in range(len(line)):
        a, b, c = (line[i - size], above[i], above[i - size]) if i >= size else (0, above[i], 0)
        if kind == 4:
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        else:
            nearest = (0, a, b, (a + b) // 2)[kind]
        line[i] = (line[i] + nearest) & 255


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_draws_the_report_without_loading_anything(tmp_path: Path) -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        if os.environ.get("CI"):
            pytest.fail("CI installs chromium")
        pytest.skip("no chromium")
    folder = full(tmp_path / "runs", 12)
    assert write_report(LocalStorage.of(folder))
    report = folder / REPORT
    picture = tmp_path / "report.png"
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--enable-logging=stderr", f"--user-data-dir={tmp_path}/profile", "--window-size=1280,2200",
         f"--screenshot={picture}", report.as_uri()],
        capture_output=True, text=True, timeout=BROWSER_S,
    )  # fmt: skip
    assert picture.exists(), done.stderr
    assert "Content Security Policy" not in done.stderr, "the page asks for nothing that it forbids"
    width, height, colors = pixels(picture.read_bytes())
    assert (width, height) == (1280, 2200)
    drawn = {"error": b"\xb3\x26\x1e", "warning": b"\xb0\x6f\x00", "plain": b"\x33\x65\x8a", "paper": b"\xf6\xf7\xf9"}
    assert {name for name, color in drawn.items() if color in colors} == set(drawn)
