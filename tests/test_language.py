"""Checks the language of messages, help texts and docstrings: plain technical English, without a dialect.

`WORDS` has a pattern for each expression that the project's language guide replaces, if it is unambiguous, and what to
write instead. To check another source tree, add its directory to `CHECKED`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
CHECKED: Final = ("bkctl", "daemon", "recovery")

WORDS: Final = {
    r"\b(?:told|tells?|telling)\b": "reports, is notified, is logged, shows",
    r"\b(?:is|are|was|were|not) held to\b": "enforced; not supported, ignored",
    r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever)\b": "a noun: no client, another broker, the owner",
    r"\A(?:What|Who)\b(?!.*\?)": "a noun: the result, the owner",
    r"\b(?:is|are|was|were) (?:none\b(?! of\b)|no (?!longer\b|more\b))": "is not a valid X, does not exist",
    r"\bbehind\b": "after, past",
    r"\banew\b": "again, from scratch",
    r"\b(?:gives?|given|gave|giving) up\b": "release, unload, stop, abandon",
    r"\b(?:go|goes|going|went|gone) on\b": "continue, resume",
    r"\b(?:looks?|looked|looking) (?:at|for|again|whether|through|up|beside)\b": "check, poll, inspect, scan",
    r"\bhalf done\b": "interrupted operation",
    r"\b(?:not |never )?believe[ds]?\b": "trust; ignoring corrupt",
    r"\b(?:in peace|cleanly left)\b": "gracefully, without error",
    r"\bcut (?:off|short)\b": "truncate, split",
    r"\bunder way\b": "in progress, in flight, pending",
    r"\b(?:comes?|came|coming|has come) back\b": "reconnects, returns, is available again",
    r"\bpassed over\b": "skipped, ignored",
    r"\bfigures?\b": "metrics, statistics",
    r"\b(?:storeys?|in the house)\b": "layer, package, module",
    r"\bby hand\b": "manual",
    r"\b(?:the wanted|what is wanted)\b": "requested, expected, desired",
}

ALLOWED: Final = {
    ("bkctl/cli/autorecovery/_notes.py", "figures"): "a field of the JSON output",
    ("bkctl/cli/autorecovery/check.py", "figures"): "a field of the JSON output",
    ("bkctl/cli/autorecovery/status.py", "figures"): "a field of the JSON output",
    ("daemon/bkdaemon/bookie/http/cluster_routes.py", "giving up"): "a text of Java's bookie",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line and text of every docstring and string literal of a module; an f-string without its values."""
    tree = ast.parse(path.read_text(), str(path))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


@cache
def checked_texts() -> list[tuple[str, int, str]]:
    """Returns path, line and text of all literals of the checked source trees, without generated code."""
    paths = [path for root in CHECKED for path in sorted((ROOT / root).rglob("*.py"))]
    return [
        (str(path.relative_to(ROOT)), line, text)
        for path in paths
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        for line, text in texts(path)
    ]


@pytest.mark.parametrize("pattern", WORDS)
def test_texts_use_the_standard_words(pattern: str) -> None:
    word = re.compile(pattern, re.IGNORECASE)
    found = [
        f"{path}:{line}: {match[0]!r} in {text[max(match.start() - 40, 0) : match.end() + 40]!r}"
        for path, line, text in checked_texts()
        for match in word.finditer(text)
        if (path, match[0]) not in ALLOWED
    ]
    assert not found, f"write {WORDS[pattern]}:\n" + "\n".join(found)


def test_exceptions_are_still_needed() -> None:
    texts_of = {name: "\n".join(text for _, text in texts(ROOT / name)) for name, _ in ALLOWED}
    assert [(name, word) for name, word in ALLOWED if word not in texts_of[name]] == []


def test_a_pattern_does_not_match_its_replacement() -> None:
    assert [(p, good) for p, good in WORDS.items() if re.search(p, good, re.IGNORECASE)] == []
