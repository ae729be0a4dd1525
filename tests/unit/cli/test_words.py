"""The candidates for the next word of a command line."""

from __future__ import annotations

import pytest

from bkctl.cli._words import candidates
from tests.command_line import bkctl

FORMATS = ["csv", "json", "jsonl", "name", "table", "tsv", "wide", "yaml"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["led"], ["ledger"]),
        (["ledger", "sh"], ["show"]),
        (["-q", "ledger", "sh"], ["show"]),
        (["-o", "json", "ledger", "sh"], ["show"]),
        (["--timeout", "5", "ledger", "sh"], ["show"]),
        (["ledger", "show", "5", "--outp"], ["--output"]),
        (["ledger", "show", "-o", ""], FORMATS),
        (["ledger", "show", "-o", "json"], ["json", "jsonl"]),
        (["ledger", "write", "--ensemble"], ["--ensemble-size"]),
        (["-m", ""], []),
        (["ledger", "show", ""], []),
        (["ledger", "show", "--", "-"], []),
        (["nonsense", ""], []),
        (["ledger", "nonsense", "-"], []),
    ],
    ids=" ".join,
)
def test_candidates_are_those_that_continue_the_line(typed: list[str], expected: list[str]) -> None:
    assert candidates(typed) == expected


def test_every_noun_leads_to_its_verbs() -> None:
    nouns = candidates([""])
    assert {"autorecovery", "bookie", "completion", "dev", "ledger", "topic"} <= set(nouns)
    for noun in nouns:
        for verb in candidates([noun, ""]):
            found = candidates([noun, verb, "-"])
            options = found or [candidates([noun, verb, below, "-"]) for below in candidates([noun, verb, ""])]
            assert options, f"{noun} {verb}"
    assert "--no-color" in candidates(["demo", "--"])


def test_an_option_with_a_value_takes_the_next_word_and_a_flag_does_not() -> None:
    assert "show" in candidates(["--timeout", "5", "ledger", ""])
    assert "show" in candidates(["--quiet", "ledger", ""])
    assert candidates(["--timeout", ""]) == []


def test_the_command_prints_one_candidate_a_line() -> None:
    answer = bkctl("completion", "bash", "--", "ledger", "show", "-o", "j")
    assert (answer.code, answer.stdout) == (0, "json\njsonl\n")
