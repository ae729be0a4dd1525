"""`bkctl completion`: the script of each shell, and bash with its script."""

from __future__ import annotations

import subprocess
import sys

from bkctl.cli.completion import SCRIPTS
from tests.command_line import bkctl


def test_an_unknown_shell_is_a_usage_error() -> None:
    answer = bkctl("completion", "csh", "-o", "json")
    assert (answer.code, answer.error()["kind"], answer.error()["hint"]) == (2, "usage", "bash, zsh, fish")
    assert all(bkctl("completion", shell).stdout == script for shell, script in SCRIPTS.items())


def test_bash_completes_with_the_printed_script() -> None:
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
