"""Every query of the documentation runs, and counts a copy once that a journal and a log, or two logs, hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import bkinspect.audit
from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Request, run
from bkinspect.audit.report import _CHARTS, write_report
from bkinspect.audit.results import Results, opened
from bkinspect.audit.storage import LocalStorage
from bkinspect.finding import CODES

from bkctl.cli.audit import run as run_command
from bkctl.cli.audit import sql as sql_command
from tests.golden import FOLDER, Golden

README: Final = Path(bkinspect.audit.__file__).with_name("README.md")
ROOT_README: Final = Path(__file__).parents[4] / "README.md"
PYTHON_API: Final = ROOT_README.with_name("docs") / "python-api.md"
SQL: Final = re.compile(r"bkctl audit sql (['\"])(.*?)\1")
SNIPPET: Final = re.compile(r"    from bkinspect.*\n(?:    .*\n)+")
ONCE: Final = (
    "CREATE TABLE copies_once AS SELECT DISTINCT ON (ledger_id, entry_id, bookie_id) * FROM entries "
    "ORDER BY ledger_id, entry_id, bookie_id, source DESC"
)
pytestmark = pytest.mark.slow


def documented() -> list[str]:
    texts = [README.read_text(), ROOT_README.read_text(), *sql_command.COMMAND.examples]
    texts += [path.read_text() for path in sorted(PYTHON_API.parent.rglob("*.md"))]
    texts += [f"{code.text} {code.next}" for code in CODES.values()]
    found = [match[2] for text in texts for match in SQL.finditer(text)]
    return list(dict.fromkeys([*found, *(chart.sql for chart in _CHARTS)]))


@pytest.fixture(scope="module")
def audited(spark: Any, golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("audit") / "run"
    run(spark, Request(Sources(str(FOLDER / "zk_tree.json"), (golden.bookie("bookie0"),)), to, ("space",)))
    return to


def answer(results: Results, sql: str) -> list[str]:
    return sorted(map(str, results.query(sql)))


def test_documented_sql_counts_each_copy_once(audited: Path) -> None:
    queries = documented()
    assert sum("from entries" in sql.lower() for sql in queries) >= 2
    with opened(audited) as results:
        as_read = {sql: answer(results, sql) for sql in queries}
        (counts,) = results.query("select count(*) as n from entries where source = 'journal'")
        assert int(str(counts["n"])) > 0
        results.connection.execute(ONCE)
        (once,) = results.query("select count(*) as n from copies_once")
        assert int(str(once["n"])) < results.count("entries")
        results.connection.execute("CREATE OR REPLACE VIEW entries AS SELECT * FROM copies_once")
        assert as_read == {sql: answer(results, sql) for sql in queries}


def test_the_notebook_example_counts_each_copy_once(spark: Any, audited: Path, golden: Golden) -> None:
    (snippet,) = SNIPPET.findall(README.read_text())
    *lines, last = [line[4:] for line in snippet.replace("/data/bookie1", str(golden.bookie("bookie0"))).splitlines()]
    names: dict[str, Any] = {"spark": spark}
    exec("\n".join(lines), names)
    rows = eval(last, names).collect()
    with opened(audited) as results:
        sql = "select ledger_id, count(distinct (entry_id, bookie_id)) as n from entries group by 1"
        expected = {row["ledger_id"]: row["n"] for row in results.query(sql)}
    assert {row["ledger_id"]: row["count"] for row in rows} == expected


def test_an_offline_run_does_not_speak_of_reading_twice(audited: Path) -> None:
    write_report(LocalStorage.of(audited))
    with opened(audited) as results:
        said = " ".join(
            [*results.about["notes"], *(f"{code.title} {code.text} {code.next}" for code in CODES.values())]
        )
    page = re.sub(r"<script.*?</script>", "", (audited / "report.html").read_text(), flags=re.DOTALL)
    for text in (said, page, run_command.run.__doc__ or ""):
        assert not re.search(r"second look|two looks|looked at (twice|again)|read again(?!, and only)", text)


def test_the_example_of_the_python_api_counts_each_copy_once(spark: Any, audited: Path, golden: Golden) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PYTHON_API.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "bkinspect" in block), names)
    rows = names["copies_by_ledger"](spark, str(golden.bookie("bookie0"))).collect()
    with opened(audited) as results:
        sql = "select ledger_id, count(distinct (entry_id, bookie_id)) as n from entries group by 1"
        assert {row["ledger_id"]: row["count"] for row in rows} == {r["ledger_id"]: r["n"] for r in results.query(sql)}
