"""Runs from seeds: no rule is broken, the same seed is the same run, and deliberate breaks are caught."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.__main__ import SCENARIOS, first_caught, replay, run_one, run_seeds, runs_of
from tests.sim.scenario import shape_of

pytestmark = pytest.mark.slow

SEEDS = 150  # of each scenario; `python -m tests.sim --scenario NAME --seeds N` runs more
JOBS = 2
ROOT = Path(__file__).parent.parent.parent
KNOWN = tomllib.loads((Path(__file__).parent / "seeds.toml").read_text())


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", ["autorecovery", "clients"])  # brokers are in test_broker.py
def test_no_seed_breaks_a_rule(scenario: str) -> None:
    outcomes = list(run_seeds(runs_of(range(1, SEEDS + 1), scenario), JOBS))
    broken = [f"{replay(o)}\n    {o.broken}" for o in outcomes if o.broken]
    assert not broken, "\n".join(broken)
    totals: Counter[str] = Counter()
    for outcome in outcomes:
        totals.update(outcome.counts)
    assert totals["acked"] > 25 * SEEDS, "runs in which something happens"
    kinds = {kind for o in outcomes for kind in o.shape.kinds}
    assert len(kinds) > 15
    if scenario == "autorecovery":
        assert totals["lost bookies"] > SEEDS / 10
        assert totals["moved"] > SEEDS
        assert totals["fenced"] > SEEDS / 10


def test_seeds_that_found_a_bug_once() -> None:
    for bug in KNOWN["bug"]:
        outcome = SCENARIOS[bug["scenario"]](bug["seed"])
        assert not outcome.broken, f"{bug['what']}: {outcome.broken}"


def test_one_seed_is_one_run_in_every_process() -> None:
    runs = [("clients", 3), ("clients", 14), ("autorecovery", 3), ("autorecovery", 8)]
    here = [run_one(run).digest for run in runs]
    assert [run_one(run).digest for run in runs] == here
    assert len(set(here)) == len(runs)
    program = (
        "import logging; logging.disable(50); from tests.sim.__main__ import run_one\n"
        f"print(*(run_one(run).digest for run in {runs}))"
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
    known = KNOWN["mutation"][mutation]
    first, seeds, scenario = known["from"], known["seeds"], known["scenario"]
    outcome = first_caught(mutation, runs_of(range(first, first + seeds), scenario))
    assert outcome is not None, f"{mutation} is not caught by seeds {first} to {first + seeds - 1}"
    print(f"{mutation} is caught by seed {outcome.seed}: {outcome.broken}")
    assert not SCENARIOS[scenario](outcome.seed).broken, "the same seed without the break"
