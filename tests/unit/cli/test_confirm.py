from __future__ import annotations

import io

import pytest

from bkctl.cli.command import Effect
from bkctl.cli.confirm import DryRun, Plan, confirm
from bkctl.errors import Refused

PLAN = Plan("delete ledger 5", ("delete the znode",), subject="5")


def ask(effect: Effect, typed: str | None, *, yes: bool = False, dry_run: bool = False) -> str:
    messages = io.StringIO()
    answers = None if typed is None else io.StringIO(typed)
    confirm(PLAN, effect, yes=yes, dry_run=dry_run, answers=answers, messages=messages)
    return messages.getvalue()


def test_yes_needs_nobody() -> None:
    assert ask(Effect.DELETES, None, yes=True) == ""


def test_without_a_terminal_it_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        ask(Effect.WRITES, None)
    assert "--yes" in (refused.value.hint or "")


def test_a_dry_run_gives_the_plan_even_with_yes() -> None:
    with pytest.raises(DryRun) as stopped:
        ask(Effect.WRITES, None, yes=True, dry_run=True)
    assert stopped.value.plan is PLAN


def test_writes_ask_for_y() -> None:
    shown = ask(Effect.WRITES, "y\n")
    assert "1. delete the znode" in shown
    for typed in ("\n", "n\n", "", "5\n"):
        with pytest.raises(Refused):
            ask(Effect.WRITES, typed)


def test_deletes_ask_for_the_name() -> None:
    assert "type 5" in ask(Effect.DELETES, "5\n")
    for typed in ("y\n", "yes\n", "55\n", ""):
        with pytest.raises(Refused):
            ask(Effect.DELETES, typed)


def test_plans_and_questions_show_no_control_characters() -> None:
    name = "b\n2. y\x1b[31m"
    for typed, wanted in ((name, False), ("b\\n2. y\\x1b[31m", True)):
        plan = Plan(f"delete {name}", (f"delete {name}",), subject=name)
        messages = io.StringIO()
        if wanted:
            confirm(
                plan, Effect.DELETES, yes=False, dry_run=False, answers=io.StringIO(typed + "\n"), messages=messages
            )
        else:
            with pytest.raises(Refused):  # only its first line is typed
                confirm(plan, Effect.DELETES, yes=False, dry_run=False, answers=io.StringIO(typed), messages=messages)
        assert messages.getvalue().count("\n") == 2
        assert "\x1b" not in messages.getvalue()


def test_what_may_lose_data_asks_for_the_name_too() -> None:
    plan = Plan("recover ledger 5 without b1", subject="b1:3181", typed=True)
    messages = io.StringIO()
    confirm(plan, Effect.FENCES, yes=False, dry_run=False, answers=io.StringIO("b1:3181\n"), messages=messages)
    assert "type b1:3181" in messages.getvalue()
    with pytest.raises(Refused):
        confirm(plan, Effect.FENCES, yes=False, dry_run=False, answers=io.StringIO("y\n"), messages=messages)
