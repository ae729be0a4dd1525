"""The report of a run: one HTML file that needs nothing else, charts by plotly, from the tables alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bkinspect.audit.results import Results, opened
from bkinspect.finding import CODES

REPORT: Final = "report.html"
FINDINGS_SHOWN_MAX: Final = 500
BARS_MAX: Final = 25
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; width: 100% } td, th { padding: .25rem .6rem; text-align: left;
border-bottom: 1px solid #ddd; vertical-align: top } th { background: #f4f4f4 } .error { color: #b00020 }
.warning { color: #8a5a00 } .info { color: #555 } code { font-size: 90% }
"""
_CHARTS: Final = (
    ("Findings by code", "SELECT code AS name, count(*) AS n FROM findings GROUP BY code ORDER BY n DESC", "findings"),
    (
        "Ledgers by state",
        "SELECT coalesce(state, 'damaged') AS name, count(*) AS n FROM ledgers GROUP BY 1 ORDER BY n DESC",
        "ledgers",
    ),
    (
        "Entry bytes by bookie",
        "SELECT coalesce(bookie_id, 'nobody') AS name, sum(entry_bytes) AS n FROM log_files "
        "WHERE source = 'entry_log' GROUP BY 1 ORDER BY n DESC",
        "bytes",
    ),
    (
        "Payload bytes of closed ledgers by owner",
        "SELECT coalesce(t.topic, 'named by no topic') AS name, sum(l.length) AS n FROM ledgers l LEFT JOIN "
        "(SELECT ledger_id, min(topic) AS topic FROM topics GROUP BY 1) t ON t.ledger_id = l.ledger_id "
        "WHERE l.length IS NOT NULL GROUP BY 1 ORDER BY n DESC",
        "bytes",
    ),
)


def write_report(run: Path) -> Path | None:
    """Writes report.html into a run's folder; None where plotly or DuckDB are not installed."""
    if find_spec("plotly") is None or find_spec("duckdb") is None:
        return None
    with opened(run) as results:
        text = "\n".join(_page(results))
    path = run / REPORT
    path.write_text(text)
    return path


def _page(results: Results) -> Iterable[str]:
    about = results.about
    when = datetime.fromtimestamp(about["as_of_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>bkctl audit</title>"
    yield f"<style>{_STYLE}</style></head><body><h1>Audit as of {when}</h1>"
    found = sum(about["counts"].values())
    yield f"<p>{found} findings by {len(about['checks'])} checks in {about['seconds']:.1f} s.</p>"
    yield _table(("what", "read"), _sources(results))
    yield "<h2>Findings</h2>"
    yield _table(("code", "severity", "what", "number"), _codes(about))
    yield from _charts(results)
    yield from _findings(results, found)
    yield "</body></html>"


def _sources(results: Results) -> list[Sequence[object]]:
    about = results.about
    rows: list[Sequence[object]] = [("metadata", about["metadata"] or "none")]
    rows += [("directory", path) for path in about["offline"]]
    rows += [("only", f"{name} = {value}") for name, value in about["selection"].items()]
    rows += [("files read, not read again", f"{about['files_read']}, {about['files_kept']}")]
    rows += [(name, f"{results.count(name):,} rows") for name in ("ledgers", "fragments", "entries", "index", "topics")]
    return rows + [("note", note) for note in about["notes"]]


def _codes(about: Any) -> list[Sequence[object]]:
    known = ((CODES.get(code), code, number) for code, number in about["counts"].items())
    return [(code, one.severity if one else "", one.title if one else "", number) for one, code, number in known]


def _charts(results: Results) -> Iterable[str]:
    """Bars; the first chart brings the library along."""
    from plotly.graph_objects import Bar, Figure

    library: bool | str = True
    for title, sql, unit in _CHARTS:
        rows = [row for row in results.query(f"{sql} LIMIT {BARS_MAX}") if row["n"]]
        if not rows:
            continue
        values, names = [int(str(row["n"])) for row in rows], [str(row["name"]) for row in rows]
        figure = Figure(Bar(x=values, y=names, orientation="h"))
        height = 140 + 26 * len(rows)
        figure.update_layout(title=title, xaxis_title=unit, height=height, margin={"l": 10, "r": 10, "t": 50, "b": 40})
        figure.update_yaxes(autorange="reversed", automargin=True, type="category")
        yield str(figure.to_html(full_html=False, include_plotlyjs=library))
        library = False


def _findings(results: Results, found: int) -> Iterable[str]:
    if not found:
        yield "<p>Nothing was found.</p>"
        return
    rows = []
    for item in results.findings():
        place = " ".join(f"{name}={item[name]}" for name in ("bookie_id", "file", "offset") if item[name] is not None)
        rows.append((item["code"], item["severity"], item["subject"], item["message"], place, item["next"]))
        if len(rows) >= FINDINGS_SHOWN_MAX:
            break
    yield _table(("code", "severity", "subject", "message", "where", "next"), rows)
    if found > len(rows):
        yield f"<p>{found - len(rows)} more: <code>bkctl audit show -o jsonl</code></p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table><tr>", *(f"<th>{escape(name)}</th>" for name in head), "</tr>"]
    for row in rows:
        cells = (_cell(value) for value in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*lines, "</table>"])


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    mark = f" class='{text}'" if text in ("error", "warning", "info") else ""
    return f"<td{mark}>{escape(text)}</td>"
