"""Runs in child processes that are forked from this one, for all that plays seeds and steps."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_children(work: Callable[[T], R], runs: Iterable[T], jobs: int, chunk: int) -> Iterator[R]:
    """The results of work in the order of runs, made by `jobs` processes; by this one if that is 1.

    What this process has made so far is thrown away here or left alone by the children: in a long test session it is
    much to go through again and again, and clients in C++ among it would wait there for threads that were not forked.
    """
    if jobs <= 1:
        yield from map(work, runs)
        return
    gc.collect()
    gc.freeze()
    try:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            yield from pool.imap(work, runs, chunksize=chunk)
    finally:
        gc.unfreeze()
