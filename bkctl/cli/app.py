"""The tree of commands: a package beside this file is a noun, a module in it a verb. Loaded when named, not before.

A verb module has `COMMAND = Command(…)` and a function `run(env, …)` whose other parameters are declared for typer.
A parameter that is a dataclass is a group of options, which several verbs share: its fields are declared for typer.
Names: `list.py` → `list`, `log_mark.py` → `log-mark`, `import_.py` → `import`; modules with a leading underscore
are not verbs. A package inside a noun is a noun below it. `TOP_LEVEL` modules beside this file are verbs without one.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Final, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from bkctl.cli.command import Command
from bkctl.cli.env import Env, Options
from bkctl.errors import BkctlError, Exit, UsageError

if TYPE_CHECKING:
    from typer._click import Command as ClickCommand
    from typer._click import Context

ROOT: Final = "bkctl.cli"
TOP_LEVEL: Final = ("completion", "demo", "explain", "version")
HELP_WIDTH_MAX: Final = 110


def _option(name: str, kind: object, default: object, info: object) -> inspect.Parameter:
    annotation = Annotated[kind, info]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _text(name: str, meaning: str, *flags: str, metavar: str) -> inspect.Parameter:
    return _option(name, str | None, None, typer.Option(*flags, metavar=metavar, help=meaning, show_default=False))


def _flag(name: str, meaning: str, *flags: str) -> inspect.Parameter:
    return _option(name, bool, False, typer.Option(*flags, help=meaning, show_default=False))


_SECONDS: Final = typer.Option(
    "--timeout", metavar="SECONDS", help="for the whole command, 0: no limit (BKCTL_TIMEOUT)", show_default=False
)
_VERBOSE: Final = typer.Option("-v", "--verbose", count=True, help="more messages on stderr", show_default=False)

GLOBAL_OPTIONS: Final = (
    _text(
        "metadata_uri",
        "zk+hierarchical://h1:2181;h2:2181/ledgers (BKCTL_METADATA_URI); Pulsar's metadata is searched beside "
        "the ledgers (/pulsar for /pulsar/ledgers), then at /, or only where BKCTL_PULSAR_PATH says",
        "-m",
        "--metadata-uri",
        metavar="URI",
    ),
    _text("conf", "a bk_server.conf (BKCTL_CONF)", "-c", "--conf", metavar="FILE"),
    _text("profile", "settings of ~/.config/bkctl/config.toml (BKCTL_PROFILE)", "--profile", metavar="NAME"),
    _text(
        "output",
        "table, wide, json, jsonl, yaml, tsv, csv, name (BKCTL_OUTPUT); control characters are escaped, and - and "
        "@file read the escapes of name",
        "-o",
        "--output",
        metavar="FORMAT",
    ),
    _option("timeout", float | None, None, _SECONDS),
    _flag("quiet", "fewer messages on stderr", "-q", "--quiet"),
    _option("verbose", int, 0, _VERBOSE),
    _flag("yes", "do it without asking", "--yes"),
    _flag("dry_run", "show the plan, do nothing", "--dry-run"),
    _flag("no_color", "no colors (NO_COLOR)", "--no-color"),
)
_GLOBAL_NAMES: Final = frozenset(p.name for p in GLOBAL_OPTIONS)


def _take_globals(context: Context, values: dict[str, object]) -> Env:
    """Overrides the global options of the levels before with those of this level."""
    env = cast(Env, context.obj)
    given = {name: values.pop(name) for name in _GLOBAL_NAMES}
    env.options = Options(**given).over(env.options)  # type: ignore[arg-type]
    return env


class Noun(TyperGroup):
    """A group whose members are found in a package and imported one by one."""

    package = ROOT

    def list_commands(self, ctx: Context) -> list[str]:
        """Names of the members, sorted; nothing is imported but the package."""
        return sorted(_members(self.package))

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        """Imports and builds one member."""
        member = _members(self.package).get(cmd_name)
        if member is None:
            return None
        module, is_noun = member
        return _noun(module) if is_noun else _verb(module)

    def get_help(self, ctx: Context) -> str:
        """Formats the noun's description and one line for each member."""
        members = _members(self.package)
        rows = [_summary(*members[name], name) for name in self.list_commands(ctx)]
        nouns = [(name, text) for name, effect, text in rows if effect is None]
        verbs = [(name, f"{text}  [{effect}]") for name, effect, text in rows if effect is not None]
        head = inspect.getdoc(importlib.import_module(self.package)) or ""
        parts = [f"Usage: {ctx.command_path} [OPTIONS] {'NOUN VERB' if self.package == ROOT else 'VERB'} …", head]
        parts += [_block("Nouns:", nouns)] if nouns else []
        parts += [_block("Commands:" if self.package == ROOT else "Verbs:", verbs)] if verbs else []
        parts.append(_block("Options (before or after noun and verb):", _records(self, ctx)))
        if self.package == ROOT:
            parts.append(_block("Exit codes:", [(f"{code:3d}", code.meaning) for code in Exit]))
        parts.append(
            f"`{ctx.command_path} {'NOUN VERB' if self.package == ROOT else 'VERB'} --help` says more and has examples."
        )
        return "\n\n".join(parts)


class Verb(TyperCommand):
    """A command that shows its effect and examples."""

    about: Command
    text = ""

    def get_help(self, ctx: Context) -> str:
        """Usage, words, effect, parameters, examples."""
        about = self.about
        limit = "none" if about.timeout_s is None else f"{about.timeout_s:g} s"
        own = [p for p in self.get_params(ctx) if p.name not in (*_GLOBAL_NAMES, "help")]
        arguments = [r for p in own if p.param_type_name == "argument" and (r := p.get_help_record(ctx))]
        options = [r for p in own if p.param_type_name != "argument" and (r := p.get_help_record(ctx))]
        metavars = [str(p.metavar or p.name) for p in own if p.param_type_name == "argument"]
        parts = [" ".join(["Usage:", ctx.command_path, "[OPTIONS]", *metavars]), self.text]
        parts.append(f"Effect: {about.effect} — {about.effect.meaning}.\nTimeout: {limit} (--timeout)")
        parts += [_block("Arguments:", arguments)] if arguments else []
        parts += [_block("Options:", options)] if options else []
        parts.append(_block("Global options:", _records(self, ctx)))
        parts.append("Examples:\n" + "\n".join(f"  {example}" for example in about.examples))
        return "\n\n".join(parts)


def _records(command: ClickCommand, ctx: Context) -> list[tuple[str, str]]:
    return [r for p in command.get_params(ctx) if p.name in _GLOBAL_NAMES and (r := p.get_help_record(ctx))]


def _block(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A heading and two columns, wrapped to the terminal."""
    width = min(shutil.get_terminal_size().columns, HELP_WIDTH_MAX)
    left = min(max((len(name) for name, _ in rows), default=0), width // 3) + 4
    lines = [title]
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(width - left, 20)) or [""]
        first = f"  {name}".ljust(left)
        lines += [first + wrapped[0]] if len(first) == left else [first, " " * left + wrapped[0]]
        lines += [" " * left + line for line in wrapped[1:]]
    return "\n".join(lines)


@cache
def _members(package: str) -> dict[str, tuple[str, bool]]:
    """name → (module, is it a noun) of what a package holds."""
    found = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        name = info.name.rstrip("_").replace("_", "-")
        if info.name.startswith("_") or (package == ROOT and not info.ispkg and name not in TOP_LEVEL):
            continue
        found[name] = (f"{package}.{info.name}", info.ispkg)
    return found


def _summary(module: str, is_noun: bool, name: str) -> tuple[str, str | None, str]:
    """(name, effect or None for a noun, first line of its words)."""
    loaded = importlib.import_module(module)
    text = (inspect.getdoc(loaded if is_noun else loaded.run) or "").partition("\n")[0]
    return name, None if is_noun else loaded.COMMAND.effect, text


def _noun(package: str) -> Noun:
    def levels(context: typer.Context, **values: object) -> None:
        _take_globals(context, values)
        if context.invoked_subcommand is None:
            typer.echo(context.get_help(), err=package != ROOT)
            raise typer.Exit(int(Exit.OK if package == ROOT else Exit.USAGE))

    _declare(levels, GLOBAL_OPTIONS)
    app = typer.Typer(cls=Noun, rich_markup_mode=None, add_completion=False)
    app.callback(invoke_without_command=True)(levels)
    group = typer.main.get_command(app)
    assert isinstance(group, Noun)
    group.package = package
    return group


def _verb(module: str) -> Verb:
    loaded = importlib.import_module(module)
    function = cast("Callable[..., object]", loaded.run)
    about = cast(Command, loaded.COMMAND)

    def call(context: typer.Context, **values: object) -> Exit:
        from bkctl.cli.run import execute

        return execute(_take_globals(context, values), about, function, _grouped(own, values))

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    _declare(call, (*_spread(own), *GLOBAL_OPTIONS))
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(cls=Verb)(call)
    command = typer.main.get_command(app)
    assert isinstance(command, Verb)
    command.about = about
    command.text = inspect.getdoc(function) or ""
    return command


def _spread(parameters: Sequence[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """The options of each group in the group's place."""
    for parameter in parameters:
        if not is_dataclass(parameter.annotation):
            yield parameter
            continue
        kinds = get_type_hints(parameter.annotation, include_extras=True)
        for option in fields(parameter.annotation):
            yield inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=kinds[option.name]
            )


def _grouped(parameters: Sequence[inspect.Parameter], values: dict[str, object]) -> dict[str, object]:
    """The values with those of each group made into the group."""
    left, found = dict(values), {}
    for parameter in parameters:
        if is_dataclass(parameter.annotation):
            own = {option.name: left.pop(option.name) for option in fields(parameter.annotation)}
            found[parameter.name] = cast("Callable[..., object]", parameter.annotation)(**own)
    return left | found


def _declare(function: Callable[..., object], parameters: Sequence[inspect.Parameter]) -> None:
    """Gives a function of **values the signature that typer reads."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keywords = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters)]
    function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in keywords}


def build() -> Noun:
    """The root of the tree."""
    return _noun(ROOT)


def command_line_error(error: Exception, env: Env, arguments: Sequence[str]) -> BkctlError | None:
    """Converts Typer's own error about the command line; None for any other error."""
    if not isinstance(error, typer.BadParameter.__mro__[2]):  # ClickException, which typer keeps to itself
        return None
    if env.options.output is None:  # The line was not parsed completely: search it for the output format of the error.
        for flag, value in zip(arguments, [*arguments[1:], ""], strict=True):
            if flag in ("-o", "--output"):
                env.options = Options(output=value).over(env.options)
            elif flag.startswith(("-ojson", "--output=json")):
                env.options = Options(output=flag[flag.index("json") :]).over(env.options)
    context: Context | None = getattr(error, "ctx", None)
    words = getattr(error, "format_message", error.__str__)()
    return UsageError(" ".join(words.split()).rstrip("."), hint=f"{context.command_path} --help" if context else None)
