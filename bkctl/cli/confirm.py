"""Confirmation of changes: a plan is shown, confirmed, and then executed exactly.

plan → --dry-run: the plan is the answer (stdout), exit 0
     → --yes: continue
     → a terminal: show, ask (deletes, and what may lose data: type the name of the object)
     → no terminal: refused, exit 3
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TextIO

from bkctl.cli.command import Effect
from bkctl.errors import Refused
from bkctl.model.text import escape, escape_controls


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned changes of a command, as text and as data.

    Args:
        summary: one sentence: the action and its object.
        steps: what happens, in order.
        subject: the name of the object; deletes ask for it.
        typed: ask for the subject regardless of the effect, because the action may lose data.
    """

    summary: str
    steps: tuple[str, ...] = field(default=())
    subject: str = ""
    typed: bool = False

    def text(self) -> str:
        """The plan for a person, a line each, without control characters."""
        steps = [f"  {number}. {escape_controls(step)}\n" for number, step in enumerate(self.steps, 1)]
        return f"plan: {escape_controls(self.summary)}\n{''.join(steps)}"


class DryRun(Exception):
    """--dry-run was given: the plan is the answer."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.summary)
        self.plan = plan


def confirm(plan: Plan, effect: Effect, *, yes: bool, dry_run: bool, answers: TextIO | None, messages: TextIO) -> None:
    """Returns if the plan may be executed.

    Args:
        answers: the terminal to ask; without one: None.
        messages: where the plan and the question go.

    Raises:
        DryRun: only the plan was requested.
        Refused: the plan was not confirmed.
    """
    if dry_run:
        raise DryRun(plan)
    if yes:
        return
    if answers is None:
        raise Refused(f"not confirmed: {plan.summary}", hint="--yes confirms the plan, --dry-run only shows it")
    messages.write(plan.text())
    if (effect is Effect.DELETES or plan.typed) and plan.subject:
        wanted: tuple[str, ...] = (plan.subject, escape(plan.subject))
        question = f"type {escape(plan.subject)} to continue: "
    else:
        wanted = ("y", "Y", "yes")
        question = "continue? [y/N] "
    messages.write(question)
    messages.flush()
    if answers.readline().strip() not in wanted:
        raise Refused(f"not confirmed: {plan.summary}")
