"""Sends hostile requests to a server of its own and reports what they do to it.

    python -m tests.fuzz --port-kind broker|rest|v2|v3|http --seconds 120 --seed 1

broker and rest are a broker's ports (tests.fuzz.broker), v2, v3 and http those of a bookie (tests.fuzz.bookie). A
module has `async def fuzz(port, seconds, cases, seed)`, which starts the server, stops it and returns the figures as a
dictionary. They are printed as JSON; exit 1 if its `failures` are not empty.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from typing import Final

MODULES: Final = {"broker": "broker", "rest": "broker", "v2": "bookie", "v3": "bookie", "http": "bookie"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port-kind", choices=tuple(MODULES), required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--cases", type=int, default=1_000_000, help="hostile connections at most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    module = importlib.import_module(f"tests.fuzz.{MODULES[options.port_kind]}")
    found = asyncio.run(module.fuzz(options.port_kind, options.seconds, options.cases, options.seed))
    print(json.dumps(found))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
