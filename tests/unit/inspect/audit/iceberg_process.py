"""A process with a Spark session that has an Iceberg catalog: runs audits and queries that its standard input names.

A line is a JSON object: {"sql": …} is answered with rows, {"offline": …, "to": …, …} runs an audit. Tests kill it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bkinspect.audit.facts import Sources
from bkinspect.audit.iceberg import NAMESPACE, Target
from bkinspect.audit.job import Request, run
from bkinspect.audit.session import session
from pyspark.errors import PySparkException

from bkctl.errors import BkctlError

REPLY = "reply "


def audit(spark: Any, asked: dict[str, Any]) -> dict[str, Any]:
    sources = Sources(asked["metadata"], (Path(asked["offline"]),))
    target = Target(asked["catalog"], asked.get("namespace", NAMESPACE), stale_ms=0)
    request = Request(sources, Path(asked["to"]), tuple(asked["checks"]), iceberg=target)
    outcome = run(spark, request)
    return {"run_id": outcome.as_of_ms, "counts": dict(outcome.counts), "notes": list(outcome.notes)}


def main() -> None:
    spark = session("local[2]", json.loads(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "sql" in asked:
                answer: Any = [row.asDict(recursive=True) for row in spark.sql(asked["sql"]).collect()]
            else:
                answer = audit(spark, asked)
        except BkctlError as error:
            answer = {"error": error.message, "kind": type(error).__name__, "hint": error.hint}
        except PySparkException as error:
            answer = {"error": str(error), "kind": type(error).__name__, "hint": None}
        print(REPLY + json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
