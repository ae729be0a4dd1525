"""`bkctl broker config` against a broker of Java's, which returns secrets as they are."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bkctl.meta.memory import MemoryStore, MemoryTree
from tests.command_line import bkctl

JAVAS = {
    "brokerServicePort": "6650",
    "subscriptionKeySharedEnable": "true",
    "brokerClientAuthenticationParameters": "token:hunter2",
    "tlsKeyStorePassword": "hunter2",
    "superUserRoles": None,
}


class Broker(BaseHTTPRequestHandler):
    """Answers every request with the runtime configuration."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(JAVAS).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Broker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_secrets_of_a_broker_are_masked(web: str) -> None:
    tree = MemoryTree()
    value = json.dumps({"webServiceUrl": f"http://{web}"}).encode()
    asyncio.run(MemoryStore(tree).create(f"/loadbalance/brokers/{web}", value, parents=True))
    answer = bkctl("broker", "config", "-o", "json", tree=tree)
    assert answer.code == 0, answer.stderr
    assert "hunter2" not in answer.stdout
    found = {row["key"]: row["value"] for row in answer.json()["items"]}
    assert (found["brokerServicePort"], found["subscriptionKeySharedEnable"]) == ("6650", "true")
    assert found["brokerClientAuthenticationParameters"] == found["tlsKeyStorePassword"] == "*****"
