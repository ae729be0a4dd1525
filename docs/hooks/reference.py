"""Generates the reference pages when mkdocs builds the site: commands and configuration keys, from the code itself.

The command tree, its texts, effects, exit codes and examples come from `bkctl.cli.app`; keys and defaults from the
configuration classes; refused keys from `bkctl.model.security_keys`. The meaning of a key is in `keys/*.toml` beside
this file: a key without a meaning, and a meaning without a key, fail the build.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.broker import config_keys
from bkdaemon.broker.config import BrokerConfig
from bkrecovery.settings import RECOVERY_KEYS, UNUSED_KEYS, RecoverySettings

from bkctl.cli.app import GLOBAL_OPTIONS, Noun, Verb, build
from bkctl.cli.command import Effect
from bkctl.client.config import ClientConfig, Placement
from bkctl.errors import Exit, UsageError
from bkctl.model.security_keys import BOOKIE, BOOKKEEPER_CLIENT, BROKER, OVERRIDE, Table

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

MEANINGS: Final = Path(__file__).with_name("keys")
COMMANDS: Final = "reference/commands"
OVERVIEW: Final = "overview"
CONFIGURATION: Final = "reference/configuration"
TOP_LEVEL: Final = "other"
"""The page of the commands that have no noun."""
ALLOW: Final = {OVERRIDE: "true"}
PROBES: Final = ("7", "true", "false", "MAC", "org.example.RegionawareEnsemblePlacementPolicy", "text")
_SPECIAL: Final = re.compile(r"[\\|*_\[\]<>{}&]")
_ENTITIES: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_CODE: Final = re.compile(r"(`[^`]*`)")


# -- mkdocs -----------------------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of commands to the navigation, first in the section Reference."""
    for section in config.nav or []:
        if "Reference" in section:
            section["Reference"].insert(0, {"Commands": [f"{COMMANDS}/{name}.md" for name in command_pages()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to the site."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """All generated pages: path below docs → Markdown."""
    made = {f"{COMMANDS}/{name}.md": text for name, text in command_pages().items()}
    configuration = {
        "bookie": bookie_page,
        "autorecovery": auto_recovery_page,
        "client": client_page,
        "broker": broker_page,
    }
    return made | {f"{CONFIGURATION}/{name}.md": page() for name, page in configuration.items()}


# -- Markdown ---------------------------------------------------------------------------------------------------------


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], "\\" + found[0]), text)


def escaped(text: str) -> str:
    """Text whose characters mean nothing to Markdown, apart from `code`."""
    parts = _CODE.split(text)
    return "".join(part if i % 2 else _escaped(part) for i, part in enumerate(parts))


def cell(text: str) -> str:
    """The same in one line of a table, where a bar ends a cell in code too."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part.replace("|", "\\|") if i % 2 else _escaped(part) for i, part in enumerate(parts))


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of rows that are Markdown already; nothing without rows."""
    if not rows:
        return ""
    lines = [heads, tuple("--" for _ in heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def joined(*parts: str) -> str:
    """Blocks with a blank line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


# -- commands ---------------------------------------------------------------------------------------------------------


def verbs(group: Noun, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Verb]]:
    """Every command below a group with its words, in the order of the help."""
    context = typer.Context(group)
    for name in group.list_commands(context):
        member = group.get_command(context, name)
        if isinstance(member, Noun):
            yield from verbs(member, (*path, name))
        elif isinstance(member, Verb):
            yield (*path, name), member


def command_pages() -> dict[str, str]:
    """A page for the whole tree, one for each noun, one for the commands without a noun."""
    root = build()
    context = typer.Context(root)
    by_page: dict[str, list[tuple[tuple[str, ...], Verb]]] = {}
    for path, verb in verbs(root):
        by_page.setdefault(path[0] if len(path) > 1 else TOP_LEVEL, []).append((path, verb))
    made = {OVERVIEW: _overview(by_page)}
    for name in sorted(by_page, key=lambda page: (page == TOP_LEVEL, page)):
        noun = root.get_command(context, name) if name != TOP_LEVEL else None
        made[page_name(name)] = _noun_page(name, noun if isinstance(noun, Noun) else None, by_page[name])
    return made


def page_name(noun: str) -> str:
    """The file of a noun's page; the noun `index` must not become the index of the section."""
    return noun if noun == TOP_LEVEL else f"bkctl-{noun}"


def _overview(by_page: Mapping[str, list[tuple[tuple[str, ...], Verb]]]) -> str:
    rows = [
        (
            f"[`bkctl {' '.join(path)}`]({page_name(page)}.md#{'-'.join(('bkctl', *path))})",
            verb.about.effect.value,
            cell(_first(verb.text)),
        )
        for page in sorted(by_page)
        for path, verb in by_page[page]
    ]
    verb = next(iter(by_page.values()))[0][1]
    context, names = typer.Context(verb), {p.name for p in GLOBAL_OPTIONS}
    options = [r for p in verb.get_params(context) if p.name in names and (r := p.get_help_record(context))]
    return joined(
        "# Commands",
        "`bkctl NOUN VERB NAME… [options]`. This page and those of the nouns are generated from the code; "
        "`bkctl NOUN VERB --help` shows the same.",
        "## Exit codes",
        table(("code", "meaning"), [(str(int(code)), cell(code.meaning)) for code in Exit]),
        "## Effects",
        "Each command has one effect, the most that it may do. A command that reads opens ledgers without recovery, "
        "and its metadata store refuses writes.",
        table(("effect", "meaning"), [(effect.value, cell(effect.meaning)) for effect in Effect]),
        "## Global options",
        "Before or after noun and verb. A flag takes precedence over the environment, then the profile, then the "
        "configuration file.",
        table(("option", "meaning"), [(f"`{flags}`", cell(text)) for flags, text in options]),
        "## All commands",
        table(("command", "effect", "summary"), rows),
    )


def _first(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _noun_page(name: str, noun: Noun | None, members: list[tuple[tuple[str, ...], Verb]]) -> str:
    import importlib
    import inspect

    head = inspect.getdoc(importlib.import_module(noun.package)) or "" if noun else "Commands without a noun."
    title = f"# bkctl {name}" if noun else "# Other commands"
    note = "Exit codes, effects and global options: [Commands](overview.md)."
    return joined(title, _prose(head), note, *(_verb_section(path, verb) for path, verb in members))


def _prose(text: str) -> str:
    """Paragraphs, each in one line; indented ones as they stand."""
    blocks = text.split("\n\n")
    return "\n\n".join(block if block.startswith("    ") else escaped(" ".join(block.split())) for block in blocks)


def _verb_section(path: tuple[str, ...], verb: Verb) -> str:
    command = " ".join(("bkctl", *path))
    context = typer.Context(verb, info_name=command)
    shared = {p.name for p in GLOBAL_OPTIONS} | {"help"}
    own = [p for p in verb.get_params(context) if p.name not in shared]
    arguments = [r for p in own if p.param_type_name == "argument" and (r := p.get_help_record(context))]
    options = [r for p in own if p.param_type_name != "argument" and (r := p.get_help_record(context))]
    usage = " ".join(
        [command, "[OPTIONS]", *(str(p.metavar or p.name) for p in own if p.param_type_name == "argument")]
    )
    limit = "none" if verb.about.timeout_s is None else f"{verb.about.timeout_s:g} s"
    effect = verb.about.effect
    return joined(
        f"## {command} {{ #{'-'.join(('bkctl', *path))} }}",
        f"```text\n{usage}\n```",
        _prose(verb.text),
        f"Effect: **{effect.value}**, {cell(effect.meaning)}. Timeout: {limit}.",
        table(("argument", "meaning"), [(f"`{a}`", cell(b)) for a, b in arguments]),
        table(("option", "meaning"), [(f"`{a}`".replace("|", "\\|"), cell(b)) for a, b in options]),
        "```sh\n" + "\n".join(verb.about.examples) + "\n```",
    )


# -- configuration ----------------------------------------------------------------------------------------------------


def meanings(name: str) -> dict[str, str]:
    """Key → meaning of one file of `keys`."""
    return tomllib.loads((MEANINGS / f"{name}.toml").read_text(encoding="utf-8"))


def shown(value: object) -> str:
    """A default as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Placement):
        return f"{value.capitalize()}EnsemblePlacementPolicy"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def class_keys(config: type) -> dict[str, str]:
    """Key → default of a configuration class whose fields name their keys."""
    assert is_dataclass(config)
    return {f.metadata["key"]: shown(f.default) for f in fields(config) if "key" in f.metadata}


class _Recorder(dict[str, str]):
    """A configuration that remembers which keys were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the default."""
        self.read.append(key)
        return default


def read_keys(settings_of: Callable[[Mapping[str, str]], Any]) -> dict[str, str]:
    """Key → default of a class that reads a mapping: found by setting one key after another and comparing."""
    recorder = _Recorder()
    default = settings_of(recorder)
    return {key: _default_of(settings_of, default, key) for key in recorder.read if key != OVERRIDE}


def _default_of(settings_of: Callable[[Mapping[str, str]], Any], default: Any, key: str) -> str:
    for probe in PROBES:
        try:
            probed = settings_of({key: probe})
        except UsageError:
            continue
        for item in fields(default):
            old, new = getattr(default, item.name), getattr(probed, item.name)
            if old == new:
                continue
            if probe == PROBES[0] and isinstance(new, int | float) and new:
                return shown(float(f"{old * float(probe) / new:.6g}"))  # in the unit of the file
            return "false" if probe == "true" else shown(old)
    raise AssertionError(f"{key} changes nothing")


def key_table(keys: Mapping[str, str], name: str) -> str:
    """Key, default, meaning. Raises: AssertionError, keys and meanings differ."""
    known = meanings(name)
    lacking, stale = keys.keys() - known.keys(), known.keys() - keys.keys()
    assert not lacking, f"docs/hooks/keys/{name}.toml: no meaning of {', '.join(sorted(lacking))}"
    assert not stale, f"docs/hooks/keys/{name}.toml: keys that are not read: {', '.join(sorted(stale))}"
    rows = [(f"`{key}`", f"`{default}`" if default else "", cell(known[key])) for key, default in keys.items()]
    return table(("key", "default", "meaning"), rows)


def refused_table(keys: Table) -> str:
    """The keys that refuse the start, with what is not protected without them; a `*` ends a prefix."""
    rows = [(", ".join(f"`{name}`" for name in row.names), cell(row.consequence)) for row in keys if row.consequence]
    return table(("key", "consequence of ignoring it"), rows)


REFUSED: Final = (
    "These keys ask for protection that bkctl does not support. A key that is set to anything but its harmless value "
    "(empty, or Java's default) refuses the start with exit code 2 and a message that names the key. "
    f"`{OVERRIDE}=true` ignores them with a warning."
)


def bookie_page() -> str:
    """The keys of bk_server.conf."""
    ignored = meanings("bookie_ignored")
    read = class_keys(BookieConfig)
    assert not ignored.keys() & read.keys()
    return joined(
        "# Bookie configuration",
        "`bkctl bookie start -c bk_server.conf` reads BookKeeper's own file and keys. Every other key is ignored, so "
        "that one file serves Java's bookies and bkctl's; the bookie logs the keys that it ignores.",
        "## Keys that are read",
        key_table(read, "bookie"),
        "`autoRecoveryDaemonEnabled=true` runs auto recovery in the bookie's process; its keys are on "
        "[a page of their own](autorecovery.md).",
        "## Keys that are refused",
        REFUSED,
        refused_table(BOOKIE),
        "## Keys of Java that are ignored",
        "Those that an operator may expect to have an effect:",
        table(("key", "instead"), [(f"`{key}`", cell(text)) for key, text in ignored.items()]),
    )


def auto_recovery_page() -> str:
    """The keys of auto recovery in bk_server.conf."""
    read = {k: v for k, v in read_keys(RecoverySettings.of).items() if k in RECOVERY_KEYS}
    return joined(
        "# Auto recovery configuration",
        "`bkctl autorecovery start -c bk_server.conf`, or `autoRecoveryDaemonEnabled=true` in the file of a bookie. "
        "Auto recovery also reads where the metadata are and its own address from the "
        "[bookie's keys](bookie.md), and the [keys of the client](client.md). What the checks do: "
        "[Auto recovery](../../concepts/auto-recovery.md).",
        "## Keys that are read",
        key_table(read, "autorecovery"),
        "## Keys of Java that are ignored",
        table(("key", "instead"), [(f"`{key}`", cell(text)) for key, text in UNUSED_KEYS.items()]),
        "## Keys that are refused",
        "The same as for [bookies](bookie.md#keys-that-are-refused).",
    )


def client_page() -> str:
    """The keys of BookKeeper's client."""
    return joined(
        "# Client configuration",
        "The client of bookies, in the command line (`-c FILE`), in auto recovery and in the broker, where its keys "
        "have the prefix `bookkeeper_`. Every other key is ignored.",
        "## Keys that are read",
        key_table(read_keys(ClientConfig.of), "client"),
        "## Keys that are refused",
        REFUSED,
        refused_table(BOOKKEEPER_CLIENT),
    )


def broker_page() -> str:
    """The keys of broker.conf."""
    read = class_keys(BrokerConfig)
    security = {key for key in config_keys._PARSERS if any(row.has(key) for row in BROKER)}
    ignored = sorted(config_keys._PARSERS.keys() - read.keys() - security - config_keys._ASKS.keys(), key=str.lower)
    return joined(
        "# Broker configuration",
        "`bkctl broker start -c broker.conf` reads Pulsar's own file and keys. Keys that the broker does not read are "
        "ignored, so that one file serves Java's brokers and bkctl's; a value that Java's broker could not read, and "
        "a key that resembles a known one, are logged as warnings. Keys of the bookie client have the prefix "
        "`bookkeeper_`: see [Client configuration](client.md).",
        "## Keys that are read",
        key_table(read, "broker"),
        "## Keys that are refused",
        REFUSED,
        refused_table(tuple(row for row in BROKER if not row.names[0].startswith("bookkeeper_"))),
        "The keys of the [bookie client](client.md#keys-that-are-refused) are refused too, with the prefix "
        "`bookkeeper_`.",
        "## Keys of features that are not supported",
        "The broker logs a warning and starts.",
        table(("key", "instead"), [(f"`{key}`", cell(text)) for key, text in config_keys._ASKS.items()]),
        "## Keys of Java that are ignored",
        "Keys of Pulsar 4.0 that change nothing in this broker:",
        ", ".join(f"`{key}`" for key in ignored) + ".",
    )
