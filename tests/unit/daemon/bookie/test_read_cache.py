"""The read cache: entries stay for one or two generations, and are dropped when they are written again."""

from __future__ import annotations

from bkdaemon.bookie.read_cache import ReadCache


def test_entries_are_kept_until_two_generations_have_passed() -> None:
    cache = ReadCache(200)
    cache.put(5, {0: bytes(60)})
    cache.put(5, {1: bytes(60)})  # more than half of the size: the generation is full
    assert (cache.get(5, 0), cache.get(5, 1)) == (bytes(60), bytes(60)), "in the old generation"
    cache.put(6, {0: bytes(120)})
    assert (cache.get(5, 0), cache.get(6, 0)) == (None, bytes(120))


def test_entries_of_one_ledger_are_found_in_both_generations() -> None:
    cache = ReadCache(200)
    cache.put(5, {0: bytes(120)})
    cache.put(5, {1: b"young"})
    young, old = cache.getters(5)
    assert (young(1), young(0), old(0), old(1)) == (b"young", None, bytes(120), None)
    young, old = cache.getters(77)
    assert (young(0), old(0)) == (None, None)


def test_a_dropped_entry_or_ledger_is_not_found_in_any_generation() -> None:
    cache = ReadCache(200)
    cache.put(5, {0: bytes(60), 1: bytes(60)})
    cache.put(5, {0: b"again", 2: b"two"})
    cache.drop(5, 0)
    assert (cache.get(5, 0), cache.get(5, 1), cache.get(5, 2)) == (None, bytes(60), b"two")
    cache.drop(9, 0)
    cache.drop_ledger(5)
    assert (cache.get(5, 1), cache.get(5, 2)) == (None, None)


def test_a_cache_of_size_zero_keeps_no_entry() -> None:
    cache = ReadCache(0)
    cache.put(5, {0: b"x"})
    assert cache.get(5, 0) is None
