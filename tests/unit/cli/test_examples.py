"""The examples that `--help` shows: each can be typed as it stands; Pulsar's are run, on a cluster in memory."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from functools import cache

import pytest
import typer

from bkctl.cli.app import Noun, Verb, build
from bkctl.errors import Exit
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar_cluster import init_pulsar
from tests.command_line import bkctl

PULSAR = ("topic", "subscription", "cursor", "namespace", "tenant", "broker")
ENDS_OTHERWISE = {
    "bkctl broker start -c conf/broker.conf": Exit.NOT_FOUND,  # there is no such file, and no service is wanted
    "bkctl broker leader": Exit.NOT_FOUND,  # no broker runs in memory
    "bkctl broker health": Exit.NOT_FOUND,
    "bkctl broker health 10.0.0.1:8080": Exit.NOT_FOUND,
    "bkctl broker namespaces 10.0.0.1:8080 -o json": Exit.NOT_FOUND,
    "bkctl broker config": Exit.NOT_FOUND,
    "bkctl broker config --key managedLedgerDefault": Exit.NOT_FOUND,
    "bkctl broker config --diff": Exit.NOT_FOUND,
    "bkctl cursor set my-topic my-subscription --mark-delete 12:41": Exit.USAGE,  # the topic has no ledger 12
    "bkctl cursor set my-topic my-subscription --restore ~/.local/state/bkctl/cursors/….json": Exit.NOT_FOUND,
}


def verbs(group: Noun, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Verb]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        member = group.get_command(context, name)
        if isinstance(member, Noun):
            yield from verbs(member, (*path, name))
        elif isinstance(member, Verb):
            yield (*path, name), member


@cache
def every_verb() -> dict[tuple[str, ...], Verb]:
    return dict(verbs(build()))


def piped(line: str) -> list[list[str]]:
    """The commands of a pipeline, without what is redirected."""
    return [shlex.split(part.partition(" > ")[0].partition(" < ")[0]) for part in line.split(" | ")]


EXAMPLES = [example for verb in every_verb().values() for example in verb.about.examples]


@pytest.mark.parametrize("line", [line for line in EXAMPLES if "<(" not in line and "sh -c" not in line])
def test_an_example_can_be_typed(line: str) -> None:
    commands = [words for words in piped(line) if words[0] == "bkctl"]
    assert commands
    for _, *words in commands:
        path = next(tuple(words[:length]) for length in (1, 2, 3) if tuple(words[:length]) in every_verb())
        verb = every_verb()[path]
        with verb.make_context(" ".join(path), words[len(path) :]):
            pass  # it does not raise


async def _fill(tree: MemoryTree) -> None:
    await init_pulsar(
        MemoryStore(tree), "c1", ledgers_root=None, service_url="http://h:1", broker_service_url="pulsar://h:2"
    )


def cluster() -> MemoryTree:
    """Where the examples' topics and subscriptions are, and nothing was ever sent."""
    tree = MemoryTree()
    assert bkctl("cluster", "init", "--yes", tree=tree).code == Exit.OK
    asyncio.run(_fill(tree))
    for made in ("tenant create tenant a shop other", "namespace create tenant/namespace a/b a/c shop/a shop/b"):
        assert bkctl(*made.split(), "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "create", "my-topic", "other", "--yes", tree=tree).code == Exit.OK
    assert bkctl("subscription", "create", "my-topic", "my-subscription", "--yes", tree=tree).code == Exit.OK
    return tree


def before(line: str, tree: MemoryTree) -> None:
    """What an example takes away, or makes, is not there or is there."""
    makes, removes = " create " in line, " delete " in line
    if makes and "subscription" in line:
        assert bkctl("subscription", "delete", "my-topic", "my-subscription", "--yes", tree=tree).code == Exit.OK
    elif makes and "topic" in line:
        assert bkctl("topic", "delete", "my-topic", "--yes", tree=tree).code == Exit.OK
    elif "tenant" in line and (makes or removes):
        assert bkctl("namespace", "delete", "shop/a", "shop/b", "--yes", tree=tree).code == Exit.OK
        if makes:
            assert bkctl("tenant", "delete", "shop", "--yes", tree=tree).code == Exit.OK
    elif removes and "public/orders" in line:
        assert bkctl("namespace", "create", "public/orders", "--yes", tree=tree).code == Exit.OK


@pytest.mark.parametrize(
    "line", [line for line in EXAMPLES if any(line.startswith(f"bkctl {noun} ") for noun in PULSAR)]
)
def test_an_example_about_pulsar_does_what_it_says(line: str) -> None:
    tree, given = cluster(), b""
    before(line, tree)
    for command, *words in piped(line):
        assert command == "bkctl"
        follows = words[:2] == ["topic", "tail"]  # until its time is over
        answer = bkctl(*words, "--yes", *(["--timeout", "1"] if follows else []), tree=tree, stdin=given)
        given = answer.raw
        expected = Exit.UNAVAILABLE if follows else ENDS_OTHERWISE.get(line, Exit.OK)
        if words[:3] in (["topic", "policy", "set"], ["topic", "policy", "unset"]):
            expected = Exit.UNAVAILABLE  # no broker runs
        if words[:2] == ["topic", "terminate"]:  # nobody serves it; of several, all fail
            expected = Exit.UNAVAILABLE if "other" not in words else Exit.FINDINGS
        assert answer.code == expected, answer.stderr
