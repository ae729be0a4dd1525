"""`bkctl completion`: lets a shell complete nouns, verbs and options."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import UsageError

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "source <(bkctl completion bash)",
        "bkctl completion bash > /etc/bash_completion.d/bkctl",
        "bkctl completion zsh > ~/.zfunc/_bkctl",
        "bkctl completion fish > ~/.config/fish/completions/bkctl.fish",
    ),
)

SCRIPTS: Final = {
    "bash": """\
_bkctl() {
  local IFS=$'\\n'
  COMPREPLY=($(bkctl completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _bkctl bkctl
""",
    "zsh": """\
#compdef bkctl
_bkctl() {
  local -a found
  found=("${(@f)$(bkctl completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
if [[ "${funcstack[1]}" = _bkctl ]]; then _bkctl "$@"; else compdef _bkctl bkctl; fi
""",
    "fish": """\
function _bkctl
  set -l found (bkctl completion fish -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
  if set -q found[1]
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c bkctl -f -a '(_bkctl)'
""",
}


def run(
    env: Env,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- WORD…]", help="words typed so far: prints the candidates, one a line"),
    ] = None,
) -> None:
    """Print the completion script of a shell."""
    script = SCRIPTS.get(shell)
    if script is None:
        raise UsageError(f"no completion for {shell!r}", hint=", ".join(SCRIPTS))
    if not words:
        env.stdout.write(script)
        return
    from bkctl.cli._words import candidates

    env.stdout.write("".join(f"{word}\n" for word in candidates(words)))
