"""python -m tests.model: explores the protocol with the real cores, then shows that both known defects are found."""

from __future__ import annotations

import argparse
import sys

from tests.model.explore import Result, explore, play
from tests.model.sizes import BELOW_LAST_FRAGMENT, ENSEMBLE_CHANGED, LARGE, SIZES, SMALL, UNFENCED_READS
from tests.model.system import Size, World


def main() -> int:
    """Prints what was searched and what was found; 1 if a rule is broken, or a defect is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--size", choices=[*SIZES, "small", "all", "none"], default="all")
    parser.add_argument("--minutes", type=float, default=15.0, help="for the large sizes together")
    parser.add_argument("--memory-gb", type=float, default=8.0)
    parser.add_argument("--defects", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    groups = {"small": SMALL, "all": (*SMALL, *LARGE), "none": ()}
    names = groups.get(arguments.size, (arguments.size,))
    large = sum(name in LARGE for name in names)
    good = True
    for name in names:
        minutes = arguments.minutes / large if name in LARGE else arguments.minutes
        words, size = SIZES[name]
        print(f"\n== {name}: {words}", flush=True)
        good = _search(size, (), minutes, arguments.memory_gb).broken is None and good
    if arguments.defects:
        for words, size, start in (
            ("defect 1, recovery reads do not fence", UNFENCED_READS, ()),
            ("defect 2, recovery starts below the last fragment", BELOW_LAST_FRAGMENT, ENSEMBLE_CHANGED),
        ):
            print(f"\n== {words}", flush=True)
            good = _search(size, start, arguments.minutes, arguments.memory_gb).broken is not None and good
    print("\nall as it should be" if good else "\nNOT as it should be")
    return 0 if good else 1


def _search(size: Size, lines: tuple[str, ...], minutes: float, memory_gb: float) -> Result:
    world = World(size)
    start = play(world, lines) if lines else None
    if lines:
        print("from this beginning:", *(f"     {line}" for line in lines), "the shortest way on:", sep="\n")
    result = explore(
        world,
        seconds_max=minutes * 60,
        memory_gb_max=memory_gb,
        start=start,
        progress=lambda text: print(f"  {text}", file=sys.stderr, flush=True),
    )
    print(result)
    writers, recoveries, bookies = len(world.writers), len(world.recoveries), len(world.bookies)
    print(f"({writers} states of the writer's core, {recoveries} of recovery's, {bookies} of a bookie's ledger)")
    return result


if __name__ == "__main__":
    sys.exit(main())
