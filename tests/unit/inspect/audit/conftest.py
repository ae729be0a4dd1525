"""One Spark for all audit tests of a process: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss2m"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; two cores, few partitions, a compiler that warms up fast."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    from bkinspect.audit.session import session

    conf = {
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",  # compiling plans takes longer than running them here
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    made = session("local[2]", conf)
    yield made
    made.stop()
