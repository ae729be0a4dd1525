"""bkctl: one tool for operators of Apache BookKeeper and Apache Pulsar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.cli.env import Env


def main(argv: Sequence[str] | None = None, env: Env | None = None) -> int:
    """Runs the bkctl command; returns its exit code and never raises.

    Args:
        argv: without the program's name; None takes those of the process.
        env: streams and environment; None takes those of the process.
    """
    import sys

    from bkctl.cli.env import system_env

    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        arguments = ["version"]
    env = env or system_env()
    env.arguments = tuple(arguments)
    try:
        code = _run(arguments, env)
        env.stdout.flush()
        return code
    except BaseException as error:  # noqa: BLE001 - the one place where an error becomes words and a code
        from bkctl.cli.run import failed

        return failed(env, error)


def _run(arguments: list[str], env: Env) -> int:
    import typer

    from bkctl.cli.app import build, command_line_error

    try:
        with build().make_context("bkctl", list(arguments), obj=env) as context:
            return int(context.command.invoke(context) or 0)
    except typer.Exit as end:
        return int(end.exit_code)
    except Exception as error:
        wrong = command_line_error(error, env, arguments)
        if wrong is None:
            raise
        raise wrong from None
