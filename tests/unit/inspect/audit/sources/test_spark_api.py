"""Readers run without pyspark: their base classes have stand-ins."""

from __future__ import annotations

import subprocess
import sys

from bkinspect.audit.sources import spark_api

WITHOUT = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = sys.modules["pyspark.sql.datasource"] = None
from bkinspect.audit.sources import spark_api as api
part = api.InputPartition(7)
print(part.value, all(hasattr(api, name) for name in api.__all__))
class Reader(api.DataSourceReader): pass
Reader({"path": "x"})
api.EqualTo(("a",), 1)
from bkinspect.audit.sources.scan import ScanReader
print(issubclass(ScanReader, api.DataSourceReader), "py4j" in sys.modules)
"""


def test_readers_are_imported_and_partitions_hold_their_value_without_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n") == ["7 True", "True False", ""], done.stderr


def test_every_name_is_exported() -> None:
    assert [name for name in spark_api.__all__ if not hasattr(spark_api, name)] == []
