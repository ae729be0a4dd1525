"""A local server of S3 (moto) with a bucket, on a free loopback port."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import free_ports

BUCKET = "audits"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
REQUEST_TIMEOUT_S = 60


class S3Server:
    """A running server. environ: of its clients."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        self.environ = {**os.environ, **keys, "AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_DISABLED": "true"}

    def request(self, method: str, path: str, body: bytes = b"") -> None:
        """A request that is not signed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request(method, path, body)
            assert connection.getresponse().status == 200
        finally:
            connection.close()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Keys are checked inside, and this server knows none."""
        self.request("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self.request("POST", "/moto-api/reset-auth", b"inf")


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """The server with its bucket; gone afterwards. folder: of its log."""
    port = free_ports()
    with (folder / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None, (folder / "s3.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, START_TIMEOUT_S, "the server of S3 listens")
        server = S3Server(port)
        server.request("PUT", f"/{BUCKET}")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
