"""The actions of the cores are plain values: equal by their content, so that states can be compared."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from bkctl.protocol import actions
from bkctl.protocol.actions import (
    Action,
    ChooseReplacement,
    Closed,
    Confirmed,
    Dropped,
    EnsembleChanged,
    Failed,
    FencingCovered,
    ReadMetadata,
    SendAdd,
    SendRead,
    WriteMetadata,
)
from bkctl.protocol.quorum import Reason
from tests.unit.protocol.helpers import A, B, ledger, sealed


def one_of_each(entry_id: int) -> list[Action]:
    return [
        SendAdd(0, A, (entry_id,), (sealed(entry_id),), 0),
        SendRead(0, A, entry_id, 0),
        Confirmed(entry_id),
        ChooseReplacement(((entry_id, A),), (A, B)),
        WriteMetadata(ledger(), entry_id),
        EnsembleChanged(entry_id, (A, B)),
        Dropped(entry_id, entry_id, Reason.FENCED),
        Failed(Reason.FENCED, f"entry {entry_id}"),
        FencingCovered(entry_id),
        Closed(ledger(), entry_id, True),
        ReadMetadata(),
    ]


def test_there_is_an_example_of_every_action() -> None:
    assert {type(action) for action in one_of_each(0)} == set(get_args(Action))
    defined = {
        kind for kind in vars(actions).values() if isinstance(kind, type) and kind.__module__ == actions.__name__
    }
    assert defined == set(get_args(Action))


def test_equal_actions_without_metadata_are_one_value_of_a_set() -> None:
    assert one_of_each(1) == one_of_each(1)
    plain = [action for action in one_of_each(1) + one_of_each(1) if not isinstance(action, WriteMetadata | Closed)]
    assert len(set(plain)) == len(get_args(Action)) - 2


def test_actions_with_other_content_differ() -> None:
    for one, other in zip(one_of_each(1)[:-1], one_of_each(2)[:-1], strict=True):
        assert one != other


def test_an_action_of_one_kind_is_not_equal_to_another_kind() -> None:
    assert Confirmed(3) != FencingCovered(3)
    assert len({Confirmed(3), FencingCovered(3)}) == 2


def test_an_action_that_is_not_created_for_every_entry_cannot_be_changed() -> None:
    read = SendRead(0, A, 5, 0)
    with pytest.raises(FrozenInstanceError):
        read.entry_id = 6  # type: ignore[misc]
