"""`bkctl audit run` as an application of spark-submit, which gives the master and starts the driver's JVM.

    spark-submit --master yarn --deploy-mode client …/bkinspect/audit/__main__.py --offline /mnt/bookies --to hdfs:///audits/1

takes the options of `bkctl audit run`; those of bkctl itself (-m, -o, --timeout) too.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

RUN = ("audit", "run")


def main() -> None:
    """Runs the command. The script's own folder leaves the path: its modules would hide others of their names."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here]
    sys.argv = ["bkctl", *RUN, *sys.argv[1:]]
    runpy.run_module("bkctl", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
