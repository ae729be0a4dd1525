"""The examples at the head of the two libraries, ledgers and the log, run as they are written."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.client import client as ledger_library
from bkctl.log import log as log_library
from tests.e2e.local import Local

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

URI_IN_EXAMPLES = "zk+hierarchical://127.0.0.1:2181/ledgers"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    home = tmp_path_factory.mktemp("library")
    found = Local(home)
    found.json("dev", "up", "--bookies", 3, "--dir", home / "cluster")
    try:
        yield found
    finally:
        found.run("dev", "down", "--yes")


def example_of(module: ModuleType) -> str:
    """The indented lines of a module's docstring."""
    text = inspect.getdoc(module) or ""
    lines = [line for line in text.splitlines() if line.startswith("    ") or not line]
    return textwrap.dedent("\n".join(lines)).strip()


def run_example(module: ModuleType, uri: str) -> None:
    source = example_of(module)
    assert URI_IN_EXAMPLES in source
    source = source.replace(URI_IN_EXAMPLES, uri)
    space: dict[str, Any] = {
        "BookKeeper": ledger_library.BookKeeper,
        "Log": log_library.Log,
        "recover_ledger": recover_ledger,
    }
    exec(compile("async def main():\n" + textwrap.indent(source, "    "), str(module.__file__), "exec"), space)
    asyncio.run(space["main"]())


def uri_of(local: Local) -> str:
    port = next(s["port"] for s in local.json("dev", "status") if s["kind"] == "zookeeper")
    return f"zk+hierarchical://127.0.0.1:{port}/ledgers"


def test_the_example_of_ledgers(local: Local) -> None:
    run_example(ledger_library, uri_of(local))
    (row,) = local.json("ledger", "list")
    shown = local.json("ledger", "show", row["ledger_id"])
    assert (shown["state"], shown["last_entry_id"], shown["length"]) == ("CLOSED", 1, len(b"helloworld"))


def test_the_example_of_the_log(local: Local) -> None:
    run_example(log_library, uri_of(local))
    shown = local.json("topic", "show", "my-app/logs/orders")
    assert (shown["entries"], shown["subscriptions"], shown["backlog"]) == (2, 1, 0)
    assert local.json("cursor", "list", "my-app/logs/orders")[0]["cursor"] == "billing"
