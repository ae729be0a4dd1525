"""What a shell is told may come next; and bash itself, told by the script it gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bkctl.cli.completion import SCRIPTS
from tests.command_line import bkctl

FORMATS = ["csv", "json", "jsonl", "name", "table", "tsv", "wide", "yaml"]


def words(*typed: str) -> list[str]:
    """The candidates for the last word."""
    answer = bkctl("completion", "bash", "--", *typed)
    assert answer.code == 0, answer.stderr
    return answer.stdout.splitlines()


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
def test_what_may_come(typed: list[str], expected: list[str]) -> None:
    assert words(*typed) == expected


def test_every_noun_leads_to_its_verbs() -> None:
    nouns = words("")
    assert {"autorecovery", "bookie", "completion", "dev", "ledger", "topic"} <= set(nouns)
    for noun in nouns:
        for verb in words(noun, ""):
            options = words(noun, verb, "-") or [words(noun, verb, below, "-") for below in words(noun, verb, "")]
            assert options, f"{noun} {verb}"
    assert "--no-color" in words("demo", "--")


def test_a_shell_that_is_not_known() -> None:
    answer = bkctl("completion", "csh", "-o", "json")
    assert (answer.code, answer.error()["kind"], answer.error()["hint"]) == (2, "usage", "bash, zsh, fish")
    assert all(bkctl("completion", shell).stdout == script for shell, script in SCRIPTS.items())


def test_bash_completes() -> None:
    lines = [
        f'bkctl() {{ "{sys.executable}" -m bkctl "$@"; }}',
        'eval "$(bkctl completion bash)"',
        "COMP_WORDS=(bkctl -o json ledger r x); COMP_CWORD=4; _bkctl; echo ${COMPREPLY[@]}",
        'COMP_WORDS=(bkctl ledger show ""); COMP_CWORD=3; _bkctl; echo "${#COMPREPLY[@]}"',
        "complete -p bkctl",
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [
        "read recover reopen replicate",
        "0",
        "complete -o bashdefault -o default -F _bkctl bkctl",
    ]
