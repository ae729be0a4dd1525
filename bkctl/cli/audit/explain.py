"""`bkctl audit explain`: what a run's findings mean, and what to do about them."""

from __future__ import annotations

from bkctl.cli.audit._runs import Run, run_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl audit explain", "bkctl audit explain audits/monday -o json"),
    columns=("code", "findings", "title", "next"),
    wide=("severity", "text"),
)


def run(env: Env, name: Run = None) -> list[dict[str, object]]:
    """Explains each code that a run found, with the number of findings."""
    from bkinspect.audit.results import about_run, find_run
    from bkinspect.finding import explain

    counts: dict[str, int] = about_run(find_run(run_of(env, name)))["counts"]
    items = []
    for code, number in sorted(counts.items()):
        known = explain(code)
        words = {"title": known.title, "text": known.text, "next": known.next}
        items.append({"code": code, "severity": known.severity, "findings": number, **words})
    return items
