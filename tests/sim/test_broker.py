"""Brokers in virtual time: runs from seeds, every step of an owner, deliberate breaks, and what is lost of a cursor."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from bkctl.codec.pulsar import SubscriptionType
from tests.sim.__main__ import first_caught, replay, run_one, run_seeds, runs_of
from tests.sim.broker import BrokerShape
from tests.sim.brokerfeatures import FEATURES
from tests.sim.brokersteps import SHAPES, broken_runs
from tests.sim.brokersteps import runs_of as step_runs_of

pytestmark = pytest.mark.slow

SEEDS = 100
JOBS = 2
THINNED = 20
"""Every n-th step here; `python -m tests.sim.brokersteps` tries all."""
KNOWN = {
    "receipt-before-store": 9,
    "node-is-believed": 1,
    "cursors-hold-nothing": 3,
    "keys-change-hands": 29,
    "next-one-goes-on": 5,
    "last-ledger-not-fenced": 14,
    "snapshot-is-all": 19,
    "list-overwritten": 20,
}
"""Deliberate breaks, each with a seed that shows it; once the code below has changed one of the next ones does."""
TRIED_MAX = 80
FEATURE_SEEDS = 12  # of each; `python -m tests.sim --scenario broker-FEATURE --seeds N` runs more
HAPPENS = {"batches": "parts", "chunks": "confirmed", "seeks": "seeks", "delays": "delayed", "keys": "durable",
           "repeats": "parts", "tails": "read from bookies"}  # fmt: skip
"""What is counted in runs of a feature: more than one a run."""
KNOWN_OF_FEATURES = {
    "part-is-whole": ("batches", 1),
    "parts-not-stored": ("batches", 1),
    "chunks-to-anybody": ("chunks", 3),
    "chunks-by-number-alone": ("chunks", 2),
    "seek-not-stored": ("seeks", 29),
    "seek-keeps-acks": ("seeks", 4),
    "seek-to-the-next": ("seeks", 1),
    "delays-ignored": ("delays", 1),
    "times-missed": ("delays", 5),
    "keys-change-hands": ("keys", 6),
    "snapshot-without-numbers": ("repeats", 10),
    "permits-wake-nobody": ("tails", 1),
    "failed-read-is-the-end": ("tails", 5),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_seed_breaks_a_promise() -> None:
    outcomes = list(run_seeds(runs_of(range(1, SEEDS + 1), "broker"), JOBS))
    broken = [f"{replay(o)}\n    {o.broken}" for o in outcomes if o.broken]
    assert not broken, "\n".join(broken)
    totals: Counter[str] = Counter()
    for outcome in outcomes:
        totals.update(outcome.counts)
    assert totals["confirmed"] > 25 * SEEDS, "runs in which something happens"
    assert totals["durable"] > 25 * SEEDS
    assert totals["takeovers"] > 2 * SEEDS
    assert totals["dropped ledgers"] > SEEDS
    shapes = [outcome.shape for outcome in outcomes]
    assert all(isinstance(shape, BrokerShape) for shape in shapes)
    assert {kind for shape in shapes for _, kind, _ in shape.groups} == set(SubscriptionType)
    assert {shape.leases for shape in shapes} == {shape.once for shape in shapes} == {True, False}


@pytest.mark.parametrize("feature", FEATURES)
def test_no_seed_breaks_a_promise_of_a_feature(feature: str) -> None:
    outcomes = list(run_seeds(runs_of(range(1, FEATURE_SEEDS + 1), f"broker-{feature}"), JOBS))
    broken = [f"{replay(o)}\n    {o.broken}" for o in outcomes if o.broken]
    assert not broken, "\n".join(broken)
    assert sum(outcome.counts[HAPPENS[feature]] for outcome in outcomes) > FEATURE_SEEDS
    assert sum(outcome.counts["takeovers"] for outcome in outcomes) >= FEATURE_SEEDS


def test_one_seed_is_one_run() -> None:
    assert run_one(("broker", 4)).digest == run_one(("broker", 4)).digest != run_one(("broker", 7)).digest
    for feature in FEATURES:
        assert run_one((f"broker-{feature}", 5)).digest == run_one((f"broker-{feature}", 5)).digest, feature


@pytest.mark.parametrize("case", SHAPES)
def test_every_promise_is_kept_wherever_an_owner_is_disturbed(case: str) -> None:
    runs = step_runs_of(case)
    conflicts = [run for run in runs if run[1] == "conflict"]
    others = [run for run in runs if run[1] != "conflict"]
    assert len(conflicts) > 10
    assert len(others) > 150
    broken = list(broken_runs(conflicts[::2] + others[::THINNED], JOBS))
    assert not broken, "\n".join(
        f"python -m tests.sim.brokersteps --case '{case}' --how {how} --at {at}: {what}"
        for (case, how, at), what in broken
    )


BREAKS = [(mutation, "broker", first) for mutation, first in sorted(KNOWN.items())] + [
    (mutation, f"broker-{feature}", first) for mutation, (feature, first) in sorted(KNOWN_OF_FEATURES.items())
]


@pytest.mark.parametrize(("mutation", "scenario", "first"), BREAKS)
def test_deliberate_breaks_are_caught(mutation: str, scenario: str, first: int) -> None:
    outcome = first_caught(mutation, runs_of(range(first, first + TRIED_MAX), scenario))
    assert outcome is not None, f"{mutation} is not caught by seeds {first} to {first + TRIED_MAX - 1}"
    assert not run_one((scenario, outcome.seed)).broken, "the same seed without the break"
