"""Recovery and replication killed, joined and contradicted at every step; see steps.py."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.steps import CASES, broken_runs, runs_of

pytestmark = pytest.mark.slow

JOBS = 2
THINNED = {"recovery without a bookie": 3, "replication": 8, "replication, open ledger": 12, "move, open ledger": 2}
"""Of cases with many steps every n-th here; `python -m tests.sim.steps` tries all."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", CASES)
def test_every_promise_is_kept_wherever_it_is_disturbed(name: str) -> None:
    runs = runs_of(CASES[name])
    conflicts = [run for run in runs if run[1] == "conflict"]
    others = [run for run in runs if run[1] != "conflict"]
    assert len(others) >= 40
    assert conflicts
    thin = THINNED.get(name, 1)
    broken = list(broken_runs(conflicts + others[::thin], JOBS))
    assert not broken, "\n".join(
        f"python -m tests.sim.steps --case '{case}' --how {how} --at {at}: {what}" for (case, how, at), what in broken
    )
