"""Checks the URL of a Spark master and that the master answers, and translates the errors of a session's start."""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import BkctlError, Unavailable, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT: Final = "sc://"
STANDALONE: Final = "spark://"
YARN: Final = "yarn"
YARN_CONF: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables that name the folder of Hadoop's settings; Spark needs one of them for YARN."""
_YARN_PORT: Final = 8032
TIMEOUT_S: Final = 30.0
CONNECT_PACKAGES: Final = {
    "pandas": "pandas",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
"""Modules that a session of Spark Connect imports, and the packages that have them."""
_HOSTS: Final = r"[^\s,:/]+:\d+"
_MASTER: Final = re.compile(
    r"local|local\[(?:\*|\d+)(?:,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|k8s://\S+|sc://\S+"
    rf"|spark://{_HOSTS}(?:,{_HOSTS})*"
)
_HINT: Final = "local[N], spark://HOST:PORT, yarn, k8s://URL, or sc://HOST:PORT"
_MEMORY: Final = re.compile(r"\d+[kmgtKMGT]?[bB]?")
_WRONG: Final = ("IllegalArgument", "NumberFormat", "Could not parse Master URL", "ConfigException")


def is_connect(spark: SparkSession) -> bool:
    """True for a session of Spark Connect, which has neither a SparkContext nor a JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_master(master: str, conf: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Checks a master's URL and the settings for which Spark's JVM would report errors in many lines.

    Raises:
        UsageError: the URL or a setting is not valid, or packages for sc:// are missing.
    """
    if not _MASTER.fullmatch(master):
        raise UsageError(f"{master!r} is not a valid master of Spark", hint=_HINT)
    if master == YARN and not any(environ.get(name) for name in YARN_CONF):
        raise UsageError("yarn needs the folder of Hadoop's settings", hint=" or ".join(YARN_CONF))
    memory = conf.get("spark.driver.memory", "1g")
    if not _MEMORY.fullmatch(memory):
        raise UsageError(f"spark.driver.memory={memory} is not a valid size", hint="1g, 512m")
    if master.startswith(CONNECT):
        missing = [package for name, package in CONNECT_PACKAGES.items() if not _installed(name)]
        if missing:
            raise UsageError(f"Spark Connect needs {', '.join(missing)}", hint="pip install 'pyspark[connect]'")


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def check_reachable(master: str, timeout_s: float) -> None:
    """Checks that a standalone master or a Connect server answers; their own clients retry for minutes.

    Raises:
        Unavailable: it does not answer within timeout_s seconds. UsageError: an sc:// URL is not valid.
    """
    if master.startswith(CONNECT):
        _check_connect(master, timeout_s)
    elif master.startswith(STANDALONE):
        _check_answers(f"Spark's master {master}", master.removeprefix(STANDALONE).split(","), timeout_s)


def check_yarn(jvm: Any, hadoop: Any, timeout_s: float) -> None:
    """Checks that a YARN ResourceManager answers; YARN's own client retries for 15 minutes.

    Args:
        jvm: py4j's view of a JVM with Hadoop; hadoop: its org.apache.hadoop.conf.Configuration.

    Raises:
        Unavailable: no ResourceManager answers within timeout_s seconds.
    """
    conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(hadoop)
    prefix = "yarn.resourcemanager"
    ids = str(conf.get(f"{prefix}.ha.rm-ids") or "") if conf.getBoolean(f"{prefix}.ha.enabled", False) else ""
    places = []
    for suffix in [f".{one.strip()}" for one in ids.split(",") if one.strip()] or [""]:
        place = conf.get(f"{prefix}.address{suffix}") or conf.get(f"{prefix}.hostname{suffix}") or "0.0.0.0"
        places.append(place if ":" in place else f"{place}:{_YARN_PORT}")
    _check_answers(f"YARN's ResourceManager {','.join(places)}", places, timeout_s)


def _check_answers(what: str, places: Sequence[str], timeout_s: float) -> None:
    """Checks that one of several HOST:PORT accepts a connection.

    Args:
        what: the beginning of the message.

    Raises:
        Unavailable: no place accepts a connection.
    """
    errors = []
    for place in places:
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout_s / len(places)).close()
            return
        except (OSError, OverflowError) as error:
            errors.append(str(error))
    raise Unavailable(f"{what} does not answer: {errors[-1]}")


def _check_connect(master: str, timeout_s: float) -> None:
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        channel = DefaultChannelBuilder(master).toChannel()
    except PySparkException as error:
        raise UsageError(_line(error)) from None
    try:
        grpc.channel_ready_future(channel).result(timeout=timeout_s)
    except grpc.FutureTimeoutError:
        raise Unavailable(f"Spark's server {master} does not answer within {timeout_s:g} s") from None
    finally:
        channel.close()


@contextmanager
def starting(master: str) -> Iterator[None]:
    """Translates the errors of a session's start.

    Raises:
        UsageError: a setting is not valid. Unavailable: the master does not accept the application.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except BkctlError:
        raise
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):  # py4j drops --timeout's exception
            raise Unavailable(f"Spark did not start on {master}: no answer in time, or its JVM ended") from None
        text = str(error)
        if "JAVA_GATEWAY_EXITED" in text:
            raise UsageError("Spark's JVM did not start", hint="a setting is not valid: see its own message") from None
        message = f"Spark did not start on {master}: {_line(error)}"
        if any(word in text for word in _WRONG):
            raise UsageError(message) from None
        raise Unavailable(message, trace=text) from None


def _line(error: Exception) -> str:
    """Returns the cause of a Java or Spark error as one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "")
    return said or type(error).__name__
