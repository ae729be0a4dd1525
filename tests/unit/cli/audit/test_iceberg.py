"""The options of `bkctl audit run` for Iceberg tables."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from bkinspect.audit.iceberg import NAMESPACE, Target

from bkctl.cli.audit._iceberg import target_of
from bkctl.errors import UsageError


def test_parquet_alone_has_no_target() -> None:
    assert target_of("parquet", None, None) is None


@pytest.mark.parametrize(("namespace", "expected"), [(None, NAMESPACE), ("prod", "prod")])
def test_a_catalog_has_a_namespace(namespace: str | None, expected: str) -> None:
    assert target_of("iceberg", "lake", namespace) == Target("lake", expected)


@pytest.mark.parametrize(
    ("table_format", "catalog", "namespace", "message"),
    [
        ("orc", None, None, "--table-format orc"),
        ("parquet", "lake", None, "--catalog requires"),
        ("parquet", None, "prod", "--namespace requires"),
        ("iceberg", None, None, "requires --catalog NAME"),
        ("iceberg", "a.b", None, "a.b is not a valid name"),
        ("iceberg", "lake", "", "is not a valid name"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(
    table_format: str, catalog: str | None, namespace: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        target_of(table_format, catalog, namespace)
