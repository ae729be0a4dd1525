"""Writes the report of a run from its tables: one HTML file without scripts or external resources.

The page forbids the browser to load or run anything (Content-Security-Policy): styles and charts are in the file. The
findings on it are limited by code and in total, so that its size does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from itertools import groupby
from typing import Any, Final, NamedTuple

from bkinspect.audit.coverage import Coverage, coverage
from bkinspect.audit.history import Changes, Run, changes, earlier_runs, last_comparable
from bkinspect.audit.results import Item, Results, finding_item, local_copy, opened
from bkinspect.audit.storage import Storage
from bkinspect.finding import CODES

REPORT: Final = "report.html"
FINDINGS_A_CODE_MAX: Final = 50
FINDINGS_SHOWN_MAX: Final = 600
GONE_SHOWN_MAX: Final = 50
CELL_SIZE_MAX: Final = 240
"""Characters of a value in a table; longer values are truncated."""
SOURCES_SHOWN_MAX: Final = 100
NOTES_SHOWN_MAX: Final = 100
RUNS_SHOWN_MAX: Final = 30
BARS_MAX: Final = 25
SEVERITIES: Final = ("error", "warning", "info")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE: Final = """
:root { --ink: #1c2330; --soft: #5d6778; --line: #e3e7ee; --paper: #f6f7f9; --error: #b3261e; --warning: #b06f00;
--info: #41607f; --good: #1e7b4a; --plain: #33658a }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; margin: 0; color: var(--ink);
background: var(--paper) }
main { margin: 0 auto; max-width: 78rem; padding: 1.5rem 1.25rem 4rem }
header { border-left: .4rem solid var(--good); background: #fff; padding: 1.1rem 1.4rem; border-radius: .4rem }
header.error { border-color: var(--error) } header.warning { border-color: var(--warning) }
header.info { border-color: var(--info) }
h1 { font-size: 1.65rem; margin: 0 } h2 { font-size: 1.2rem; margin: 2rem 0 .6rem }
header p { margin: .3rem 0 0; color: var(--soft); overflow-wrap: anywhere }
.badge { display: inline-block; border-radius: 1rem; padding: 0 .65rem; margin-right: .35rem; color: #fff;
font-size: .85rem; background: var(--soft) } .badge.error { background: var(--error) }
.badge.warning { background: var(--warning) } .badge.info { background: var(--info) }
.note { background: #fff6e0; border-radius: .4rem; padding: .5rem .9rem; margin: .6rem 0; overflow-wrap: anywhere }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem }
.charts > div, section { background: #fff; border-radius: .4rem; padding: .6rem 1.2rem .9rem; min-width: 0 }
section { margin-top: 1rem; overflow-x: auto }
h3 { font-size: 1rem; margin: .4rem 0 } section h2 { margin-top: .4rem }
section p { margin: .2rem 0; color: var(--soft); max-width: 60rem }
table { border-collapse: collapse; margin: .6rem 0; width: 100% }
td, th { padding: .28rem .7rem .28rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top;
overflow-wrap: anywhere } th { color: var(--soft); font-weight: 500 } th.number, td.number { text-align: right }
td.number, .bar b { font-variant-numeric: tabular-nums }
.bar { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr) 8rem; gap: .7rem; font-size: .9rem }
.bar > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap } .bar b { font-weight: 500 }
.track { display: flex; align-self: center; height: .95rem } .track i { display: block; background: var(--plain) }
.legend i { display: inline-block; width: .7rem; height: .7rem; margin: 0 .3rem 0 .8rem; background: var(--plain) }
i.error { background: var(--error) } i.warning { background: var(--warning) } i.info { background: var(--info) }
i.live { background: #2b7a78 } i.dead { background: #a9b2bf } i.orphan { background: #d08a1d }
i.over-replicated { background: #7a5ea8 }
svg { width: 100%; height: auto; display: block } svg text { font-size: 11px; fill: var(--soft) }
rect { fill: var(--plain) } rect.error { fill: var(--error) } rect.warning { fill: var(--warning) }
rect.info { fill: var(--info) } code { font-size: 90% } footer { margin-top: 2rem; color: var(--soft) }
@media (max-width: 60rem) { .charts { grid-template-columns: 1fr } }
"""
_SPACE_SQL: Final = (
    "WITH whole AS (SELECT {column} AS name, sum(bytes) AS total FROM space GROUP BY 1 ORDER BY 2 DESC, 1 "
    "LIMIT {bars}) SELECT name, reason AS part, sum(bytes) AS n FROM space JOIN whole ON name = {column} "
    "GROUP BY name, total, reason ORDER BY total DESC, name, reason DESC"
)


class Chart(NamedTuple):
    """A chart of bars.

    sql: returns name, n and, for stacked bars, part of each bar or part.
    """

    title: str
    sql: str
    unit: str


_CHARTS: Final = (
    Chart(
        "Findings by code",
        "SELECT code AS name, any_value(severity) AS part, count(*) AS n FROM findings GROUP BY code ORDER BY n DESC",
        "findings",
    ),
    Chart(
        "Ledgers by state",
        "SELECT coalesce(state, 'damaged') AS name, count(*) AS n FROM ledgers GROUP BY 1 ORDER BY n DESC",
        "ledgers",
    ),
    Chart(
        "Entry logs by bookie and reason",
        _SPACE_SQL.format(column="bookie_id", bars=BARS_MAX),
        "bytes",
    ),
    Chart(
        "Entry logs by owner and reason",
        _SPACE_SQL.format(column="CASE owner WHEN '-' THEN 'no owner known' ELSE owner END", bars=BARS_MAX),
        "bytes",
    ),
    Chart(
        "Copies by bookie",
        "SELECT bookie_id AS name, count(*) AS n FROM entries WHERE source = 'live' GROUP BY 1 ORDER BY n DESC",
        "copies",
    ),
    Chart(
        "Payload of closed ledgers by owner",
        "SELECT coalesce(t.topic, 'named by no topic') AS name, sum(l.length) AS n FROM ledgers l LEFT JOIN "
        "(SELECT ledger_id, min(topic) AS topic FROM topics GROUP BY 1) t ON t.ledger_id = l.ledger_id "
        "WHERE l.length IS NOT NULL GROUP BY 1 ORDER BY n DESC",
        "bytes",
    ),
)


def write_report(run: Storage) -> bool:
    """Writes report.html into a run's folder; returns False if DuckDB is not installed.

    Raises:
        Refused: the run is not on this machine and its tables are larger than results.COPY_BYTES_MAX.
    """
    if find_spec("duckdb") is None:
        return False
    with opened(local_copy(run)) as results:
        text = "\n".join(_page(results, run))
    run.write(REPORT, text.encode())
    return True


def _page(results: Results, run: Storage) -> Iterable[str]:
    about = results.about
    this = Run(run, about)
    earlier = earlier_runs(run, about)
    since = last_comparable(about, earlier)
    changed = None if since is None else changes(this, since, GONE_SHOWN_MAX)
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    yield f"<title>bkctl audit, {_time(about['as_of_ms'])}</title><style>{_STYLE}</style></head><body><main>"
    yield from _header(about)
    notes = [str(note) for note in about["notes"]]
    yield from (f"<div class='note'>{escape(_cut(note))}</div>" for note in notes[:NOTES_SHOWN_MAX])
    if len(notes) > NOTES_SHOWN_MAX:
        yield f"<div class='note'>{len(notes) - NOTES_SHOWN_MAX:,} more notes are in run.json</div>"
    kinds = _kinds(results)
    if kinds:
        yield f"<section><h2>By code</h2>{_codes(kinds)}</section>"
    yield from _changes(changed)
    yield from _trends([this, *earlier[: RUNS_SHOWN_MAX - 1]][::-1])
    yield from _coverage(coverage(results), about)
    yield "<h2>The cluster</h2>"
    yield from _charts(results)
    yield f"<section><h2>What was read</h2>{_table(('what', 'read'), _sources(results))}</section>"
    yield from _findings(results, kinds)
    yield "<footer>bkctl audit show, diff, explain and sql read the tables beside this file.</footer>"
    yield "</main></body></html>"


def _header(about: Mapping[str, Any]) -> Iterable[str]:
    found = sum(about["counts"].values())
    severities = [(name, number) for name in SEVERITIES if (number := _severities(about).get(name))]
    worst = severities[0][0] if severities else "sound"
    yield f"<header class='{worst}'><h1>{_count(found, 'finding') if found else 'Nothing was found'}</h1><p>"
    yield from (f"<span class='badge {name}'>{number:,} {name}</span>" for name, number in severities)
    checks = _count(len(about["checks"]), "check")
    yield f"Audit as of {_time(about['as_of_ms'])}, {checks}, {about['seconds']:.1f} s</p>"
    cluster = f"Cluster: <b>{escape(_cut(about.get('metadata') or 'directories without metadata'))}</b>"
    instance = about.get("instance_id")
    yield f"<p>{cluster}{f', instance id {escape(_cut(instance))}' if instance else ''}</p>"
    contract = about.get("contract")
    if contract:
        failing = ", ".join(f"{number:,} {code}" for code, number in contract["failing"].items())
        sums = ((word, sum(contract[word].values())) for word in ("suppressed", "allowed"))
        spared = "".join(f"; {number:,} {word}" for word, number in sums if number)
        yield f"<p>{f'Findings that fail the run: {failing}' if failing else 'The run passes'}{spared}</p>"
    yield "</header>"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _severities(about: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the number of findings by severity; derived from the codes if run.json does not have it."""
    known: Mapping[str, int] | None = about.get("severities")
    if known is not None:
        return known
    sums: dict[str, int] = {}
    for code, number in about["counts"].items():
        name = str(CODES[code].severity) if code in CODES else "info"
        sums[name] = sums.get(name, 0) + number
    return sums


def _kinds(results: Results) -> list[Item]:
    """Returns the numbers of findings by severity and code, errors first."""
    sql = (
        "SELECT severity, code, count(*) AS n, count(suppressed) AS suppressed FROM findings GROUP BY severity, code "
        "ORDER BY list_position(['error', 'warning', 'info'], severity), code"
    )
    return list(results.query(sql))


def _codes(kinds: Sequence[Item]) -> str:
    rows = []
    for kind in kinds:
        code = str(kind["code"])
        known = CODES.get(code)
        title = known.title if known else ""
        rows.append((code, kind["severity"], title, kind["n"], kind["suppressed"]))
    return _table(("code", "severity", "what", "#findings", "#suppressed"), rows)


def _changes(changed: Changes | None) -> Iterable[str]:
    """Yields the section with new and gone findings since the last run with the same checks and selection."""
    if changed is None:
        yield "<section><h2>Changes</h2><p>There is no earlier run with the same checks and selection.</p></section>"
        return
    yield f"<section><h2>Changes since {_time(changed.since.as_of_ms)}</h2>"
    codes = sorted({*changed.new, *changed.gone})
    if not codes:
        yield "<p>No finding is new, and none is gone.</p></section>"
        return
    rows = [
        (code, CODES[code].title if code in CODES else "", changed.new.get(code, 0), changed.gone.get(code, 0))
        for code in codes
    ]
    yield _table(("code", "what", "#new", "#gone"), rows)
    if changed.gone_items:
        gone = sum(changed.gone.values())
        yield f"<h3>Gone</h3>{_table(('code', 'subject', 'what', 'where'), map(_gone, changed.gone_items))}"
        if gone > len(changed.gone_items):
            yield f"<p>{gone - len(changed.gone_items):,} more: <code>bkctl audit diff</code></p>"
    yield "</section>"


def _gone(item: Item) -> Sequence[object]:
    return item["code"], item["subject"], item["message"], _place(item)


def _trends(runs: Sequence[Run]) -> Iterable[str]:
    """Yields two charts with one column per run: findings by severity, and duration."""
    if len(runs) < 2:
        return
    yield "<h2>Trend</h2><div class='charts'>"
    findings = [[(name, _severities(run.about).get(name, 0)) for name in SEVERITIES[::-1]] for run in runs]
    yield f"<div><h3>Findings by run</h3>{_columns(runs, findings, 'findings')}{_legend(SEVERITIES)}</div>"
    seconds = [[("", round(float(run.about["seconds"]), 1))] for run in runs]
    yield f"<div><h3>Duration by run</h3>{_columns(runs, seconds, 's')}</div></div>"


_WIDTH: Final = 560
_HEIGHT: Final = 150
_LEFT: Final = 60
_TOP: Final = 14


def _columns(runs: Sequence[Run], values: Sequence[Sequence[tuple[str, float]]], unit: str) -> str:
    most = max(max(sum(value for _, value in parts) for parts in values), 1)
    step = (_WIDTH - _LEFT) / len(runs)
    lines = [f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT + _TOP + 20}' role='img'>"]
    lines.append(f"<text x='{_LEFT - 6}' y='{_TOP + 8}' text-anchor='end'>{most:,}</text>")
    lines.append(f"<text x='{_LEFT - 6}' y='{_TOP + _HEIGHT}' text-anchor='end'>0 {unit}</text>")
    for i, (run, parts) in enumerate(zip(runs, values, strict=True)):
        words = ", ".join(f"{value:,} {name}".strip() for name, value in parts[::-1])
        lines.append(f"<g><title>{_time(run.as_of_ms)}: {escape(words)}</title>")
        bottom = float(_TOP + _HEIGHT)
        for name, value in parts:
            height = _HEIGHT * value / most
            bottom -= height
            x, width = _LEFT + i * step + step * 0.1, min(step * 0.8, 60)
            place = f"x='{x:.1f}' y='{bottom:.1f}' width='{width:.1f}' height='{height:.1f}'"
            lines.append(f"<rect class='{name}' {place}/>" if height else "")
        lines.append("</g>")
    first, last = (_time(run.as_of_ms)[:10] for run in (runs[0], runs[-1]))
    y = _TOP + _HEIGHT + 15
    lines.append(f"<text x='{_LEFT}' y='{y}'>{first}</text>")
    lines.append(f"<text x='{_WIDTH}' y='{y}' text-anchor='end'>{last}</text></svg>")
    return "".join(lines)


def _legend(parts: Iterable[str]) -> str:
    words = "".join(f"<i class='{_class(part)}'></i>{escape(part)}" for part in parts)
    return f"<p class='legend'>{words}</p>"


def _coverage(read: Coverage, about: Mapping[str, Any]) -> Iterable[str]:
    """Yields the section with the share of copies that each run verified."""
    yield "<section><h2>Coverage</h2>"
    if not read.copies:
        yield "<p>This run read no entries, so it verified no copy as a whole.</p></section>"
        return
    rows: list[tuple[str, int]] = []
    for part in read.parts:
        own = part.at_ms == about["as_of_ms"]
        rows.append((f"verified by {'this run' if own else f'the run of {_time(part.at_ms)}'}", part.copies))
    rows += [("digest cannot be checked", read.unchecked)] if read.unchecked else []
    rows += [("on bookies that were not read", read.unread)] if read.unread else []
    if about["selection"]:
        yield "<p>Shares are of the copies of the selected ledgers, see below.</p>"
    for name, number in rows:
        share = number / read.copies
        yield _bar(name, [("", share)], f"{number:,} ({share:.1%})")
    yield "</section>"


def _sources(results: Results) -> list[Sequence[object]]:
    about = results.about
    rows: list[Sequence[object]] = [("metadata", about["metadata"] or "none")]
    offline = about["offline"]
    rows += [("directory", path) for path in offline[:SOURCES_SHOWN_MAX]]
    if len(offline) > SOURCES_SHOWN_MAX:
        rows.append(("directory", f"{len(offline) - SOURCES_SHOWN_MAX:,} more"))
    if about.get("live_copies"):
        rows.append(("copies", "of running bookies"))
    rows += [("only", f"{name} = {value}") for name, value in about["selection"].items()]
    if offline:
        rows.append(("files", f"{about['files_read']} read, {about['files_kept']} as an earlier audit read them"))
    rows += [(what, _count(number, "row")) for name, what in _COUNTED if (number := results.count(name))]
    return rows


_COUNTED: Final = (
    *(("ledgers", "ledgers"), ("fragments", "fragments"), ("entries", "entries in logs, journals and streams")),
    *(("index", "index"), ("topics", "topics"), ("cursors", "cursors"), ("bookies", "bookies"), ("ends", "ends")),
)
"""The tables whose rows are counted, and their labels; an entry can be a row of a journal and a row of a log."""


def _charts(results: Results) -> Iterable[str]:
    """Yields the charts: one bar per name, stacked if the rows have parts."""
    yield "<div class='charts'>"
    for chart in _CHARTS:
        rows = [(str(row["name"]), str(row.get("part", "")), int(str(row["n"]))) for row in results.query(chart.sql)]
        bars: dict[str, list[tuple[str, int]]] = {}
        for name, part, number in rows:
            if number:
                bars.setdefault(name, []).append((part, number))
        if not bars:
            continue
        most = max(sum(number for _, number in parts) for parts in bars.values())
        yield f"<div><h3>{escape(chart.title)}</h3>"
        for name, parts in list(bars.items())[:BARS_MAX]:
            shares = [(part, number / most) for part, number in parts]
            yield _bar(name, shares, f"{sum(number for _, number in parts):,} {chart.unit}")
        if len(bars) > BARS_MAX:
            yield f"<p>{len(bars) - BARS_MAX:,} more</p>"
        if reasons := list(dict.fromkeys(part for _, part, _ in rows if part)):
            yield _legend(reasons)
        yield "</div>"
    yield "</div>"


def _bar(name: str, shares: Iterable[tuple[str, float]], words: str) -> str:
    """Returns a row of a chart: its name, a bar whose parts are shares of the full width, and a number."""
    text = escape(_cut(name), quote=True)
    parts = "".join(f"<i class='{_class(part)}' style='width:{share:.2%}'></i>" for part, share in shares)
    return f'<div class="bar"><span title="{text}">{text}</span><span class="track">{parts}</span><b>{words}</b></div>'


def _class(part: str) -> str:
    """Returns a part's name as a CSS class; empty for a name that is not one word."""
    return part if part.replace("-", "").isalpha() else ""


def _findings(results: Results, kinds: Sequence[Item]) -> Iterable[str]:
    """Yields a section per code, errors first, with its meaning, the next step, and its first findings.

    Findings that are not suppressed come first.
    """
    if not kinds:
        return
    yield "<h2>Findings</h2>"
    left = FINDINGS_SHOWN_MAX
    sql = (
        "SELECT * FROM findings WHERE severity = ? AND code = ? ORDER BY suppressed IS NOT NULL, first_seen_ms DESC, "
        'ledger_id, entry_id, bookie_id, file, "offset" LIMIT ?'
    )
    for severity, group in groupby(kinds, key=lambda kind: str(kind["severity"])):
        for kind in group:
            code, number = str(kind["code"]), int(str(kind["n"]))
            known = CODES.get(code)
            limit = min(FINDINGS_A_CODE_MAX, left)
            rows = [_finding(finding_item(row)) for row in results.query(sql, [severity, code, limit])]
            left -= len(rows)
            title = escape(known.title if known else "")
            badge = f"<span class='badge {_class(severity)}'>{escape(severity)}</span>"
            yield f"<section><h3>{badge}{escape(code)} {title}</h3>"
            if known is not None:
                yield f"<p>{escape(known.text)}</p><p><b>Next:</b> {escape(known.next)}</p>"
            if rows:
                yield _table(("subject", "what", "where", "seen"), rows)
            if number > len(rows):
                yield f"<p>{number - len(rows):,} more: <code>bkctl audit show --code {escape(code)}</code></p>"
            yield "</section>"


def _finding(item: Item) -> Sequence[object]:
    first, runs = item.get("first_seen_ms"), item.get("runs_seen")
    seen = "" if first is None else f"since {_time(int(str(first)))[:10]}, {_count(int(str(runs or 1)), 'run')}"
    if item.get("suppressed"):
        seen = f"suppressed: {item['suppressed']}; {seen}"
    return item["subject"], item["message"], _place(item), seen


def _place(item: Item) -> str:
    file = item["file"] if item["offset"] is None else f"{item['file'] or ''} @ {item['offset']}"
    return " ".join(str(part) for part in (item["bookie_id"], file) if part is not None)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table><thead><tr>", *(_head(name) for name in head), "</tr></thead><tbody>"]
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    return "".join([*lines, "</tbody></table>"])


def _head(name: str) -> str:
    return f"<th class='number'>{escape(name[1:])}</th>" if name.startswith("#") else f"<th>{escape(name)}</th>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"<td class='number'>{value:,}</td>"
    text = "" if value is None else str(value)
    if text in SEVERITIES:
        return f"<td><span class='badge {text}'>{text}</span></td>"
    return f"<td>{escape(_cut(text))}</td>"


def _cut(value: object) -> str:
    """Returns a value as text, truncated to CELL_SIZE_MAX characters."""
    text = str(value)
    return text if len(text) <= CELL_SIZE_MAX else f"{text[: CELL_SIZE_MAX - 1]}…"
