"""The example notebook and the arguments of `load`, as a user of any Spark session has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import bkinspect.audit
from bkinspect.audit import register

from tests.golden import FOLDER, Golden

METADATA = str(FOLDER / "zk_tree.json")
NOTEBOOK = Path(bkinspect.audit.__file__).with_name("notebook.ipynb")
pytestmark = pytest.mark.slow


def test_the_example_notebook_runs(
    spark: Any, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOKIE", str(golden.bookie("bookie0")))
    monkeypatch.setenv("METADATA", METADATA)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    shown = capsys.readouterr().out
    assert "CLOSED|" in shown
    assert names["copies"].count() == names["entries"].select("ledger_id").distinct().count() > 0
    assert names["ledgers"].count() > 0


def test_load_takes_one_path_several_paths_and_file_uris(spark: Any, golden: Golden) -> None:
    register(spark)
    folders = [str(golden.bookie(name)) for name in ("bookie0", "bookie1")]
    reader = spark.read.format("bookkeeper.bookie_ledgers")
    one, other = (reader.load(folder).count() for folder in folders)
    assert min(one, other) > 0
    assert reader.load(folders).count() == one + other
    assert reader.load(f"file://{folders[0]}").count() == one
    assert spark.read.format("bookkeeper.bookie_ledgers").option("paths", folders[0]).load().count() == one


@pytest.mark.parametrize(
    ("format_", "options", "path", "error"),
    [
        ("bookkeeper.ledgers", {"metadata": METADATA}, METADATA, "the option metadata and an argument of load"),
        ("bookkeeper.entries", {}, "s3a://bucket/b1", "scheme s3a is not supported"),
    ],
)
def test_load_refuses_metadata_given_twice_and_other_file_systems(
    spark: Any, format_: str, options: dict[str, str], path: str, error: str
) -> None:
    register(spark)
    with pytest.raises(Exception, match=error):
        spark.read.format(format_).options(**options).load(path).count()
