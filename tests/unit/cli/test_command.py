"""The declaration of a verb: its effect, its columns, its defaults."""

from __future__ import annotations

import pytest

from bkctl.cli.command import TIMEOUT_S_DEFAULT, Command, Effect


@pytest.mark.parametrize("effect", Effect)
def test_every_effect_has_a_meaning_of_its_own(effect: Effect) -> None:
    assert effect.meaning
    assert [other for other in Effect if other.meaning == effect.meaning] == [effect]


def test_the_wide_forms_add_columns() -> None:
    command = Command(Effect.READS, ("x",), columns=("a", "b"), wide=("c",))
    assert command.all_columns == ("a", "b", "c")


@pytest.mark.parametrize(
    ("columns", "name", "expected"), [(("a", "b"), "b", "b"), (("a", "b"), "", "a"), ((), "", ""), ((), "b", "b")]
)
def test_the_name_of_an_item_is_the_given_field_or_the_first_column(
    columns: tuple[str, ...], name: str, expected: str
) -> None:
    assert Command(Effect.READS, ("x",), columns=columns, name=name).name_column == expected


def test_a_command_asks_and_has_a_time_limit_unless_it_says_otherwise() -> None:
    command = Command(Effect.WRITES, ("x",))
    assert (command.asks, command.timeout_s, command.live, command.takes_back) == (
        True,
        TIMEOUT_S_DEFAULT,
        False,
        False,
    )
