"""The tree of commands as a whole: every one has help, an effect and examples; nothing heavy is loaded for it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bkctl.cli import app
from bkctl.cli.command import Command, Effect
from bkctl.errors import Exit
from tests.command_line import bkctl

FORBIDDEN = (
    "asyncio", "kazoo", "grpc", "google.protobuf", "rocksdict", "rich", "tabulate", "pyspark", "uvloop", "ssl",
    "concurrent.futures", "google_crc32c", "bkdaemon", "bkinspect", "bkrecovery", "bkctl.client", "bkctl.protocol",
    "bkctl.meta", "bkctl.codec",
)  # fmt: skip


def tree(package: str = app.ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    for name, (module, is_noun) in sorted(app._members(package).items()):
        yield (*words, name), module, is_noun
        if is_noun:
            yield from tree(module, (*words, name))


MEMBERS = list(tree())
VERBS = [(words, module) for words, module, is_noun in MEMBERS if not is_noun]


@pytest.mark.parametrize("words", [words for words, _, _ in MEMBERS], ids=" ".join)
def test_help_everywhere(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert bkctl(*words, "--help").code == 0
    assert capsys.readouterr().out.startswith(f"Usage: bkctl {' '.join(words)}")


@pytest.mark.parametrize(("words", "module"), VERBS, ids=[" ".join(w) for w, _ in VERBS])
def test_every_verb_says_what_it_is(words: tuple[str, ...], module: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = __import__(module, fromlist=["run"])
    command = loaded.COMMAND
    assert isinstance(command, Command)
    assert isinstance(command.effect, Effect)
    assert command.examples
    for example in command.examples:
        assert "bkctl " in example
        assert f" {' '.join(words)}" in example
    assert next(iter(inspect.signature(loaded.run).parameters)) == "env"
    assert (inspect.getdoc(loaded.run) or "").partition("\n")[0].endswith(".")
    bkctl(*words, "--help")
    shown = capsys.readouterr().out
    assert f"Effect: {command.effect}" in shown
    assert command.examples[0] in shown


@pytest.mark.parametrize(
    "words", [(), *[w for w, _, is_noun in MEMBERS if is_noun]], ids=lambda w: " ".join(w) or "bkctl"
)
def test_help_of_nouns_is_light(words: tuple[str, ...]) -> None:
    script = (
        "import sys; from bkctl.cli import main; code = main(sys.argv[1:]);"
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words, "--help"], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert {f for f in FORBIDDEN if f in loaded} == set()


def test_the_root_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    bkctl("--help")
    listed = capsys.readouterr().out.partition("Exit codes:\n")[2].partition("\n\n")[0].splitlines()
    assert [int(line.split()[0]) for line in listed] == [int(code) for code in Exit]
    assert all(len(line.split()) > 1 for line in listed)


def test_no_noun_shows_help_and_no_verb_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert bkctl().code == 0
    assert "Nouns:" in capsys.readouterr().out
    assert bkctl("ledger").code == 2


@pytest.mark.parametrize("words", [("nonsense",), ("ledger", "nonsense"), ("version", "--nonsense"), ("-o",)])
def test_what_makes_no_sense(words: tuple[str, ...]) -> None:
    answer = bkctl(*words)
    assert answer.code == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("line", [("-o", "json", "nonsense"), ("nonsense", "-o", "json"), ("version", "-x", "-ojson")])
def test_complaints_are_json_too(line: tuple[str, ...]) -> None:
    answer = bkctl(*line)
    assert answer.code == 2
    assert {**answer.error(), "message": "", "hint": ""} == {
        "kind": "usage", "exit_code": 2, "message": "", "retryable": False, "hint": "", "details": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [("-o", "json", "version"), ("version", "-o", "json"), ("-o", "yaml", "version", "--output", "json")],
)
def test_global_options_before_and_after(line: tuple[str, ...]) -> None:
    assert set(bkctl(*line).json()) == {"version", "python", "platform"}


def test_an_unknown_format_is_refused_before_anything_is_done() -> None:
    answer = bkctl("version", "-o", "xml")
    assert (answer.code, answer.stdout) == (2, "")
