"""Runs `bkctl audit run` as an application of spark-submit, which sets the master and starts the driver's JVM.

    spark-submit --master yarn --deploy-mode client …/bkinspect/audit/__main__.py --offline /mnt/bookies --to hdfs:///audits/1

It accepts the options of `bkctl audit run` and those of bkctl itself (-m, -o, --timeout).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

RUN = ("audit", "run")


def main() -> None:
    """Runs the command without the script's folder on sys.path: its modules would hide modules of the same names."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here]
    sys.argv = ["bkctl", *RUN, *sys.argv[1:]]
    runpy.run_module("bkctl", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
