"""HDFS and YARN by Hadoop's own servers on loopback, and the jars that Spark lacks, from Maven Central."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from bkinspect.java import find_java

from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import LIBRARY, free_ports, require_java

FOLDER = Path(__file__).parent / "java"
POM = FOLDER / "hadoop-pom.xml"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
FETCH_TIMEOUT_S = 900
START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60
PORTS = 6
"""Of ResourceManager and NodeManager, as Hadoop.java takes them."""
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
OF_SERVERS = ("hadoop-client-minicluster", "bc")
OPENS = "--add-opens=java.base/java.lang=ALL-UNNAMED"
JAVA = ("-Xmx512m", *SMALL_JVM.split(), OPENS, "-Djava.net.preferIPv4Stack=true")


def hadoop_version() -> str:
    """The version of Hadoop among Spark's jars."""
    (jar,) = SPARK_JARS.glob("hadoop-client-api-*.jar")
    match = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
    assert match is not None
    return match[1]


def jars() -> list[Path]:
    """Hadoop's servers and its client of S3, fetched once a machine."""
    mark = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]  # other jars, another folder
    folder = LIBRARY / f"hadoop-{hadoop_version()}-{mark}"
    LIBRARY.mkdir(parents=True, exist_ok=True)
    with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = LIBRARY / "hadoop.new"
            shutil.rmtree(fresh, ignore_errors=True)
            copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
            words = [f"-Dhadoop={hadoop_version()}", f"-DoutputDirectory={fresh}"]
            subprocess.run([*copy, *words], check=True, timeout=FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL)
            fresh.rename(folder)
    return sorted(folder.glob("*.jar"))


def s3_jars() -> list[Path]:
    """Hadoop's client of S3 with the SDK under it."""
    return [jar for jar in jars() if not jar.name.startswith(OF_SERVERS)]


def java_home() -> Path:
    """The Java of Spark."""
    return find_java(os.environ).resolve().parent.parent


class HadoopCluster:
    """A running cluster. home: its folder; uri: of its file system; environ: of its clients."""

    def __init__(self, home: Path, uri: str) -> None:
        self.home, self.uri = home, uri
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(java_home()), "BKCTL_STATE_DIR": str(home / "state")}
        self.environ = {**os.environ, **here, "HADOOP_CONF_DIR": str(home / "conf")}


@contextmanager
def running() -> Iterator[HadoopCluster]:
    """NameNode, DataNode, ResourceManager and NodeManager in one process, which is gone afterwards."""
    require_java()
    servers = [str(jar) for jar in jars() if jar.name.startswith(OF_SERVERS)]
    home = Path(tempfile.mkdtemp(prefix="bkctl-hadoop-"))
    log = home / "out.log"
    class_path = ":".join([*servers, f"{SPARK_JARS}/*"])
    command = [str(java_home() / "bin/java"), *JAVA, "-cp", class_path, str(FOLDER / "src/Hadoop.java")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, str(home), str(free_ports(PORTS))],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**os.environ, "JAVA_HOME": str(java_home())},
            start_new_session=True,
        )
    try:

        def ready() -> re.Match[str] | None:
            text = log.read_text(errors="replace")
            assert process.poll() is None, f"Hadoop ended with {process.returncode}: {text[-3000:]}"
            return re.search(r"^ready (\S+)$", text, re.MULTILINE)

        try:
            uri = wait_for(ready, START_TIMEOUT_S, "Hadoop is ready")[1]
        except AssertionError as error:
            error.add_note(log.read_text(errors="replace")[-3000:])
            raise
        yield HadoopCluster(home, uri)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)
