"""Runs from seeds: no rule is broken, the same seed is the same run, and deliberate breaks are caught."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.__main__ import first_caught, replay, run_seeds, runs_of
from tests.sim.scenario import shape_of, simulate

pytestmark = pytest.mark.slow

SEEDS = 200
JOBS = 2
ROOT = Path(__file__).parent.parent.parent
KNOWN = tomllib.loads((Path(__file__).parent / "seeds.toml").read_text())


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_seed_breaks_a_rule() -> None:
    outcomes = list(run_seeds(runs_of(range(1, SEEDS + 1)), JOBS))
    broken = [f"{replay(o)}\n    {o.broken}" for o in outcomes if o.broken]
    assert not broken, "\n".join(broken)
    assert sum(o.counts["acked"] for o in outcomes) > 50 * SEEDS, "runs in which something happens"
    kinds = {kind for o in outcomes for kind in o.shape.kinds}
    assert len(kinds) > 15


def test_seeds_that_found_a_bug_once() -> None:
    for bug in KNOWN["bug"]:
        outcome = simulate(bug["seed"])
        assert not outcome.broken, f"{bug['what']}: {outcome.broken}"


def test_one_seed_is_one_run_in_every_process() -> None:
    seeds = [3, 14]
    here = [simulate(seed).digest for seed in seeds]
    assert [simulate(seed).digest for seed in seeds] == here
    assert len(set(here)) == len(seeds)
    program = (
        "import logging; logging.disable(50); from tests.sim.scenario import simulate\n"
        f"print(*(simulate(seed).digest for seed in {seeds}))"
    )
    for hash_seed in ("0", "12345"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.split() == here, f"PYTHONHASHSEED={hash_seed}: {found.stderr[-500:]}"


def test_shapes_differ() -> None:
    shapes = [shape_of(seed) for seed in range(200)]
    assert len({s.quorums for s in shapes}) > 5
    assert {s.version for s in shapes} == {2, 3}


@pytest.mark.parametrize("mutation", sorted(KNOWN["mutation"]))
def test_deliberate_breaks_are_caught(mutation: str) -> None:
    first, seeds = KNOWN["mutation"][mutation]["from"], KNOWN["mutation"][mutation]["seeds"]
    outcome = first_caught(mutation, runs_of(range(first, first + seeds)))
    assert outcome is not None, f"{mutation} is not caught by seeds {first} to {first + seeds - 1}"
    print(f"{mutation} is caught by seed {outcome.seed}: {outcome.broken}")
    assert not simulate(outcome.seed).broken, "the same seed without the break"
