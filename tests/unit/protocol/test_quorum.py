"""Masks against the plain definitions of the model, for every size up to five."""

from __future__ import annotations

import itertools

import pytest

from bkctl.errors import BkctlError, UsageError
from bkctl.model.placement import covered, write_set
from bkctl.protocol.quorum import TIMED_OUT, Quorum, Reason, error_for
from bkctl.protocol.recovery import status_name

SIZES = [(e, w, a) for e in range(1, 6) for w in range(1, e + 1) for a in range(1, w + 1)]


@pytest.mark.parametrize("size", SIZES)
def test_masks_say_what_the_definitions_say(size: tuple[int, int, int]) -> None:
    quorum = Quorum(*size)
    e, w, a = size
    for entry_id in range(2 * e):
        assert quorum.write_set_mask(entry_id) == sum(1 << i for i in write_set(entry_id, e, w))
    for mask in range(1 << e):
        indexes = {i for i in range(e) if mask >> i & 1}
        assert quorum.covered(mask) == covered(indexes, e, w, a)
        assert quorum.complete(mask) == (len(indexes) >= a)
        assert quorum.absent(mask) == (len(indexes) >= w - a + 1)
        assert quorum.hopeless(mask) == (len(indexes) > w - a)


@pytest.mark.parametrize("size", SIZES)
def test_absent_and_complete_exclude_each_other(size: tuple[int, int, int]) -> None:
    """Whoever denied an entry cannot have acknowledged it: never can both quorums come from one write set."""
    quorum = Quorum(*size)
    members = write_set(0, size[0], size[1])
    for split in itertools.product((False, True), repeat=len(members)):
        acks = sum(1 << m for m, acked in zip(members, split, strict=True) if acked)
        denied = sum(1 << m for m, acked in zip(members, split, strict=True) if not acked)
        assert not (quorum.complete(acks) and quorum.absent(denied))


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(UsageError):
        Quorum(3, 2, 3)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_an_error(reason: Reason) -> None:
    error = error_for(reason, 7, "b1")
    assert isinstance(error, BkctlError)
    assert "7" in str(error)
    assert "b1" in str(error)


def test_a_status_has_a_name_for_messages() -> None:
    assert [status_name(s) for s in (0, 2, TIMED_OUT, 999)] == ["ok", "no_entry", "timed out", "status 999"]
