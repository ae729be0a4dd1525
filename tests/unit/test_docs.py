"""The pages of docs/: commands parse, links lead to a page and a heading, names exist, examples run."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.properties import config_of, parse_properties

from bkctl.client.client import BookKeeper
from tests.unit.cli.test_examples import every_verb
from tests.unit.client.cluster import SimCluster, simulate

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
HEADING = re.compile(r"^#+ (.*?)(?: \{ #([\w-]+) \})?$", re.M)
PACKAGES = ("bkctl", "bkdaemon", "bkinspect", "bkrecovery")
KEY = re.compile(r"[a-z]+[A-Z]\w*")
NOT_KEYS = {"bookieHost", "lastMark"}
"""A line of a cookie, and a file."""


@cache
def hook() -> ModuleType:
    """The hook of mkdocs, loaded as mkdocs loads it."""
    spec = importlib.util.spec_from_file_location("docs_reference", DOCS / "hooks/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def written() -> dict[str, str]:
    return {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}


@cache
def all_pages() -> dict[str, str]:
    return {**written(), **hook().pages()}


def fenced(text: str, language: str) -> list[str]:
    return [body for _, name, body in FENCE.findall(text) if name == language]


def prose(text: str) -> str:
    return FENCE.sub("", text)


def commands(line: str) -> Iterator[list[str]]:
    """The words of each bkctl command in a line of a shell."""
    command: list[str] = []
    for word in [*shlex.split(line, comments=True), "|"]:
        if word not in ("|", "&&", ";"):
            command.append(word)
            continue
        if command and Path(command[0]).name == "bkctl":
            yield command[1:]
        command = []


def parses(words: list[str]) -> None:
    path = next(tuple(words[:n]) for n in (3, 2, 1) if tuple(words[:n]) in every_verb())
    with every_verb()[path].make_context(" ".join(path), words[len(path) :]):
        pass  # it does not raise


LINES = [
    (page, line.strip())
    for page, text in written().items()
    for block in [*fenced(text, "sh"), *fenced(text, "ini")]
    for line in block.splitlines()
    if "bkctl " in line
]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_command_parses(page: str, line: str) -> None:
    found = list(commands(line.removeprefix("ExecStart=")))
    assert found or "BKCTL_" in line or not line.startswith("bkctl"), f"{page}: no command in {line}"
    for words in found:
        parses(words)


def test_a_command_within_a_sentence_exists() -> None:
    paths = {path[:n] for path in every_verb() for n in range(1, len(path) + 1)}
    wrong = []
    for page, text in written().items():
        for code in INLINE.findall(prose(text)):
            words = code.split()
            if words[0] != "bkctl" or len(words) < 2 or words[1].isupper():
                continue
            names = [word for word in words[1:4] if re.fullmatch(r"[a-z-]+", word)]
            if tuple(names[:2]) not in paths:
                wrong.append(f"{page}: {code}")
    assert not wrong, "\n".join(wrong)


def anchors(text: str) -> set[str]:
    found = set()
    for title, name in HEADING.findall(prose(text)):
        plain = re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower()
        found.add(name or re.sub(r"[-\s]+", "-", plain))
    return found


def test_links_lead_to_a_page_and_a_heading() -> None:
    wrong = []
    for page, text in all_pages().items():
        for target in LINK.findall(prose(text)):
            if target.startswith(("https://", "http://")):
                continue
            path, _, anchor = target.partition("#")
            other = str((DOCS / page).parent.joinpath(path).resolve().relative_to(DOCS)) if path else page
            if other not in all_pages() or (anchor and anchor not in anchors(all_pages()[other])):
                wrong.append(f"{page}: {target}")
    assert not wrong, "\n".join(wrong)


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = name.rpartition(".")
    return importlib.util.find_spec(module) is not None and hasattr(importlib.import_module(module), attribute)


def test_modules_and_files_exist() -> None:
    wrong = []
    for page, text in written().items():
        for code in INLINE.findall(text):
            if code.split(".")[0] in PACKAGES and re.fullmatch(r"[\w.]+", code):
                if "." in code and not exists(code):
                    wrong.append(f"{page}: {code}")
            elif re.fullmatch(r"(tests|inspect|daemon|recovery|bkctl)/[\w./]*", code) and not (ROOT / code).exists():
                wrong.append(f"{page}: {code}")
    assert not wrong, "\n".join(wrong)


def known_keys() -> set[str]:
    keys = {*hook().class_keys(BookieConfig), *hook().class_keys(BrokerConfig), *hook().RECOVERY_KEYS}
    return keys | {"autoRecoveryDaemonEnabled", "bkctlAllowInsecure"}


def test_keys_within_a_sentence_are_read() -> None:
    found = {code for text in written().values() for code in INLINE.findall(prose(text)) if KEY.fullmatch(code)}
    assert len(found) >= 10
    assert found - known_keys() == NOT_KEYS


def test_configuration_files_can_be_read() -> None:
    blocks = [block for text in written().values() for block in fenced(text, "properties")]
    assert len(blocks) == 2
    for block in blocks:
        kind: type[Any] = BrokerConfig if "clusterName" in block else BookieConfig
        lines = "\n".join(line.strip() for line in block.splitlines())
        assert not config_of(kind, parse_properties(lines), source="docs").unknown


def test_every_page_of_the_navigation_exists() -> None:
    found = set(re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert found - all_pages().keys() == set()
    assert written().keys() - found == set()


def test_the_reference_has_every_command_and_key() -> None:
    pages = hook().pages()
    overview = pages["reference/commands/overview.md"]
    for path, verb in every_verb().items():
        assert f"`bkctl {' '.join(path)}`" in overview
        assert any(verb.about.examples[0] in page for page in pages.values())
    for kind, name in ((BookieConfig, "bookie"), (BrokerConfig, "broker")):
        for key in hook().class_keys(kind):
            assert f"| `{key}` |" in pages[f"reference/configuration/{name}.md"]


def test_defaults_are_shown_in_the_unit_of_the_file() -> None:
    recovery = hook().read_keys(hook().RecoverySettings.of)
    assert recovery["openLedgerRereplicationGracePeriod"] == "30000"
    client = hook().read_keys(hook().ClientConfig.of)
    assert (client["readTimeout"], client["useV2WireProtocol"]) == ("5", "false")
    assert hook().class_keys(BrokerConfig)["managedLedgerDigestType"] == "CRC32C"


def test_a_key_without_a_meaning_fails_the_build() -> None:
    with pytest.raises(AssertionError, match="no meaning of invented"):
        hook().key_table({"invented": "1"}, "autorecovery")


def test_the_examples_of_the_python_api_run() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in fenced((DOCS / "python-api.md").read_text(), "python"):
        exec(block, names)

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        assert await names["write_and_read"](bookkeeper) == [b"hello", b"world"]
        assert await names["take_over"](bookkeeper)

    simulate(scenario)
