"""The report of a run: one HTML file that needs nothing else, charts by plotly, from the tables alone.

The page forbids its reader's browser to load anything (Content-Security-Policy): script, style and data are inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from itertools import groupby
from typing import Any, Final, NamedTuple

from bkinspect.audit.results import Results, local_copy, opened
from bkinspect.audit.storage import Storage
from bkinspect.finding import CODES

REPORT: Final = "report.html"
FINDINGS_SHOWN_MAX: Final = 500
BARS_MAX: Final = 25
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
_STYLE: Final = """
:root { --ink: #1c2330; --soft: #5d6778; --line: #e3e7ee; --paper: #f6f7f9; --error: #b3261e; --warning: #9a5b00;
--info: #41607f; --good: #1e7b4a }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; margin: 0; color: var(--ink);
background: var(--paper) }
main { margin: 0 auto; max-width: 78rem; padding: 1.5rem 1.25rem 4rem }
header { border-left: .4rem solid var(--good); background: #fff; padding: 1.1rem 1.4rem; border-radius: .4rem }
header.error { border-color: var(--error) } header.warning { border-color: var(--warning) }
header.info { border-color: var(--info) }
h1 { font-size: 1.65rem; margin: 0 } h2 { font-size: 1.2rem; margin: 2rem 0 .6rem }
header p { margin: .3rem 0 0; color: var(--soft) }
.badge { display: inline-block; border-radius: 1rem; padding: 0 .65rem; margin-right: .35rem; color: #fff;
font-size: .85rem } .badge.error { background: var(--error) } .badge.warning { background: var(--warning) }
.badge.info { background: var(--info) }
.note { background: #fff6e0; border-radius: .4rem; padding: .5rem .9rem; margin: .6rem 0 }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem }
.charts > div, section { background: #fff; border-radius: .4rem; padding: .4rem .8rem; min-width: 0; overflow: hidden }
section { padding: .2rem 1.2rem .8rem; margin-top: 1rem; overflow-x: auto }
h3 { font-size: 1rem; margin: .9rem 0 .2rem } section p { margin: .2rem 0; color: var(--soft); max-width: 60rem }
table { border-collapse: collapse; margin: .6rem 0; width: 100% }
td, th { padding: .28rem .7rem .28rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top;
overflow-wrap: anywhere } th { color: var(--soft); font-weight: 500 } .number { text-align: right; width: 8rem }
code { font-size: 90% } footer { margin-top: 2rem; color: var(--soft) }
@media (max-width: 60rem) { .charts { grid-template-columns: 1fr } }
"""
_COLOURS: Final = {
    "error": "#b3261e",
    "warning": "#d08a1d",
    "info": "#6b8cae",
    "live": "#2b7a78",
    "dead": "#a9b2bf",
    "orphan": "#d08a1d",
    "over-replicated": "#7a5ea8",
}
_PLAIN: Final = "#33658a"
_SPACE_SQL: Final = (
    "WITH whole AS (SELECT {column} AS name, sum(bytes) AS total FROM space GROUP BY 1 ORDER BY 2 DESC, 1 "
    "LIMIT {bars}) SELECT name, reason AS part, sum(bytes) AS n FROM space JOIN whole ON name = {column} "
    "GROUP BY name, total, reason ORDER BY total DESC, name, reason DESC"
)


class Chart(NamedTuple):
    """Bars: rows of sql have name, n and, where bars are stacked, part."""

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
    """Writes report.html into a run's folder; False where plotly or DuckDB are not installed.

    Raises:
        Refused: the run is not on this machine and its tables are larger than results.COPY_BYTES_MAX.
    """
    if find_spec("plotly") is None or find_spec("duckdb") is None:
        return False
    with opened(local_copy(run)) as results:
        text = "\n".join(_page(results))
    run.write(REPORT, text.encode())
    return True


def _page(results: Results) -> Iterable[str]:
    about = results.about
    when = datetime.fromtimestamp(about["as_of_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    found = sum(about["counts"].values())
    severities = [(name, number) for name in ("error", "warning", "info") if (number := _severities(about).get(name))]
    worst = severities[0][0] if severities else "sound"
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    yield f"<title>bkctl audit, {when}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<header class='{worst}'><h1>{_count(found, 'finding') if found else 'Nothing was found'}</h1><p>"
    yield from (f"<span class='badge {name}'>{number:,} {name}</span>" for name, number in severities)
    yield f"Audit as of {when}, {_count(len(about['checks']), 'check')}, {about['seconds']:.1f} s</p></header>"
    yield from (f"<div class='note'>{escape(str(note))}</div>" for note in about["notes"])
    if found:
        yield f"<section><h2>By code</h2>{_table(('code', 'severity', 'what', '#'), _codes(about))}</section>"
    yield "<h2>The cluster</h2>"
    yield from _charts(results)
    yield f"<section><h2>What was read</h2>{_table(('what', 'read'), _sources(results))}</section>"
    yield from _findings(results, found)
    yield "<footer>bkctl audit show, diff, explain and sql read the tables beside this file.</footer>"
    yield "</main></body></html>"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _severities(about: Any) -> dict[str, int]:
    """The number of findings of each severity."""
    sums: dict[str, int] = {}
    for code, number in about["counts"].items():
        name = str(CODES[code].severity) if code in CODES else "info"
        sums[name] = sums.get(name, 0) + number
    return sums


def _sources(results: Results) -> list[Sequence[object]]:
    about = results.about
    rows: list[Sequence[object]] = [("metadata", about["metadata"] or "none")]
    rows += [("directory", path) for path in about["offline"]]
    if about["live_copies"]:
        rows.append(("copies", "of running bookies"))
    rows += [("only", f"{name} = {value}") for name, value in about["selection"].items()]
    if about["offline"]:
        rows.append(("files", f"{about['files_read']} read, {about['files_kept']} as an earlier audit read them"))
    rows += [(what, _count(number, "row")) for name, what in _COUNTED if (number := results.count(name))]
    return rows


_COUNTED: Final = (
    *(("ledgers", "ledgers"), ("fragments", "fragments"), ("entries", "entries in logs, journals and streams")),
    *(("index", "index"), ("topics", "topics"), ("cursors", "cursors"), ("bookies", "bookies"), ("ends", "ends")),
)
"""Tables and what their rows are: an entry can be a row of a journal and of a log."""


def _codes(about: Any) -> list[Sequence[object]]:
    known = ((CODES.get(code), code, number) for code, number in about["counts"].items())
    return [(code, one.severity if one else "", one.title if one else "", number) for one, code, number in known]


def _charts(results: Results) -> Iterable[str]:
    """Bars; the first chart brings the library along."""
    from plotly.graph_objects import Bar, Figure

    library: bool | str = True
    yield "<div class='charts'>"
    for chart in _CHARTS:
        rows = [row for row in results.query(chart.sql) if row["n"]]
        names = list(dict.fromkeys(str(row["name"]) for row in rows))[:BARS_MAX]
        if not names:
            continue
        figure = Figure()
        for part in dict.fromkeys(str(row.get("part", "")) for row in rows):
            own = [row for row in rows if str(row.get("part", "")) == part and str(row["name"]) in names]
            values, labels = [int(str(row["n"])) for row in own], [str(row["name"]) for row in own]
            colour = _COLOURS.get(part, _PLAIN)
            figure.add_trace(Bar(x=values, y=labels, name=part, orientation="h", marker_color=colour))
        figure.update_layout(
            title=chart.title, xaxis_title=chart.unit, height=170 + 26 * len(names), barmode="stack",
            showlegend="part" in rows[0], template="plotly_white", bargap=0.35, font={"size": 13},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
            margin={"l": 10, "r": 20, "t": 80, "b": 40},
        )  # fmt: skip
        figure.update_yaxes(
            categoryorder="array", categoryarray=names[::-1], automargin=True, type="category", ticksuffix="  "
        )
        settings = {"displayModeBar": False, "responsive": True}
        drawn = figure.to_html(full_html=False, include_plotlyjs=library, config=settings, default_width="100%")
        yield f"<div>{drawn}</div>"
        library = False
    yield "</div>"


def _findings(results: Results, found: int) -> Iterable[str]:
    """A section a code: what it means, what to do, and the places."""
    if not found:
        return
    yield "<h2>Findings</h2>"
    shown = 0
    for code, items in groupby(results.findings(), key=lambda item: item["code"]):
        if shown >= FINDINGS_SHOWN_MAX:
            break
        rows = []
        for item in items:
            if shown < FINDINGS_SHOWN_MAX:
                shown += 1
                rows.append((item["subject"], item["message"], _place(item)))
        known = CODES.get(str(code))
        yield f"<section><h3>{escape(str(code))} {escape(known.title if known else '')}</h3>"
        if known is not None:
            yield f"<p>{escape(known.text)}</p><p><b>Next:</b> {escape(known.next)}</p>"
        yield f"{_table(('subject', 'what', 'where'), rows)}</section>"
    if found > shown:
        yield f"<p>{found - shown:,} more: <code>bkctl audit show -o jsonl</code></p>"


def _place(item: dict[str, object]) -> str:
    file = item["file"] if item["offset"] is None else f"{item['file'] or ''} @ {item['offset']}"
    return " ".join(str(part) for part in (item["bookie_id"], file) if part is not None)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table><thead><tr>", *(_head(name) for name in head), "</tr></thead><tbody>"]
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    return "".join([*lines, "</tbody></table>"])


def _head(name: str) -> str:
    return "<th class='number'>findings</th>" if name == "#" else f"<th>{escape(name)}</th>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    if text in ("error", "warning", "info"):
        return f"<td><span class='badge {text}'>{text}</span></td>"
    return f"<td class='number'>{value:,}</td>" if isinstance(value, int) else f"<td>{escape(text)}</td>"
