"""Creates Spark sessions for audits: finds Java, runs workers on this interpreter, registers bkctl's data sources.

    spark = session(master="local[2]")
    spark.read.format("bookkeeper.ledgers").option("metadata", "export.jsonl").load()

Any other session can be used as well: `register(spark)` adds the data sources to it.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import UsageError
from bkctl.world import private_umask
from bkinspect.audit.masters import (
    CONNECT,
    TIMEOUT_S,
    YARN,
    check_master,
    check_reachable,
    check_yarn,
    is_connect,
    starting,
)
from bkinspect.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("pyspark", "pyarrow", "numpy")
INSTALL: Final = "pip install 'bkctl[spark]'"
BATCH_ROWS: Final = 100_000
"""Rows of an Arrow batch, about ten megabytes in Python and in the JVM."""
DRIVER_MEMORY: Final = "1g"
TASKS_MAX: Final = 100_000
"""An upper bound for the tasks that any cluster runs at once."""
FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
_SETTINGS: Final = {
    FILTERS: "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    "spark.hadoop.fs.permissions.umask-mode": "077",
}
_LATE_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Thresholds of the second compiler, ten times the JVM's defaults: most code of an audit runs for seconds only, so its
second compilation costs more time than it saves."""
JAVA_OPTIONS: Final = f"-XX:+UseParallelGC -XX:-UsePerfData -Djava.net.preferIPv4Stack=true {_LATE_COMPILER}"
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_SETTINGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
appender.stderr.layout.alwaysWriteExceptions = false
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
"""
_NO_LOG: Final = "OFF"
_LOCAL_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "8",
}

SMALL_BYTES: Final = 8 << 20
"""Bytes of facts up to which compiling a query takes longer than running it."""
_SMALL_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def suited(spark: SparkSession, size: int) -> Iterator[None]:
    """Sets the session for queries over so many bytes of Parquet, until the context ends.

    Settings of the user are not changed.
    """
    own = {**_SETTINGS, **_LOCAL_SETTINGS}
    before: dict[str, str | None] = {}
    for name, value in _SMALL_SETTINGS.items() if size <= SMALL_BYTES else ():
        set_ = spark.conf.get(name, None) if is_connect(spark) else spark.sparkContext.getConf().get(name)
        if set_ in (None, own.get(name)):
            before[name] = set_
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value_before in before.items():
            if value_before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value_before)


def check_installed() -> None:
    """Checks that the packages of the extra `spark` are installed.

    Raises:
        UsageError: a package is missing.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"an audit needs {', '.join(missing)}", hint=INSTALL)


def session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
) -> SparkSession:
    """Returns the session of this process: the existing one, or a new one with the settings of an audit.

    Args:
        master: Spark's master URL, sc:// for Spark Connect; None takes `spark.master` of conf, else that of
            spark-submit, else all cores of this machine.
        conf: settings that override those of an audit and of spark-submit.
        timeout_s: seconds to wait for the first answer of the master.

    Raises:
        UsageError: Spark's packages or a Java are missing, the master's URL or a setting is not valid.
        Unavailable: the master does not answer.
    """
    check_installed()
    given = dict(conf or {})
    master = given.get("spark.master") if master is None else master
    if master is not None:
        check_master(master, given, environ)
        check_reachable(master, timeout_s)
        if master.startswith(CONNECT):
            return _connected(master, given)
    _prepare(environ, given)
    submitted = _submitted(environ)
    chosen = {**submitted, **given}
    master = master or chosen.get("spark.master") or f"local[{os.cpu_count() or 1}]"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("bkctl audit")
    settings = _settings(master, chosen, submitted=bool(submitted))
    for name, value in settings.items():
        builder = builder.config(name, value)
    with private_umask(), starting(master):  # the JVM and its Python workers keep the umask
        if master == YARN and not submitted:
            check_yarn(*_hadoop(settings), timeout_s)
        made: SparkSession = builder.getOrCreate()
    register(made)
    return made


def _settings(master: str, chosen: Mapping[str, str], *, submitted: bool) -> dict[str, str]:
    """Returns the settings of a session: those of an audit, overridden by the chosen ones.

    Args:
        submitted: True if spark-submit has started the JVM: its memory and its options are not set then.
    """
    local = master.startswith("local")
    settings = {**_SETTINGS, **(_LOCAL_SETTINGS if local else {}), **chosen, "spark.master": master}
    if not local:
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            if name not in chosen:
                del settings[name]
    if submitted:
        return settings
    settings.setdefault("spark.driver.memory", DRIVER_MEMORY)
    settings[_DRIVER_OPTIONS] = _driver_options(settings)
    return settings


def _driver_options(conf: Mapping[str, str]) -> str:
    """Returns the options of the driver's JVM: those of the user, else JAVA_OPTIONS, plus the log configuration."""
    return f"{conf.get(_DRIVER_OPTIONS, JAVA_OPTIONS)} -Dlog4j2.configurationFile={_log_settings()}"


def _submitted(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of spark-submit, if it has started this process, else an empty dictionary."""
    if "PYSPARK_GATEWAY_PORT" not in environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _connected(master: str, chosen: Mapping[str, str]) -> SparkSession:
    """Returns a session of Spark Connect; settings spark.hadoop.* become Hadoop settings of the session."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with starting(master):
        made: SparkSession = SparkSession.builder.remote(master).getOrCreate()
        ours = {name: value for name, value in _SETTINGS.items() if name.startswith("spark.sql.")}
        for name, value in {**ours, **chosen}.items():
            if name != "spark.master":
                try:
                    made.conf.set(name.removeprefix("spark.hadoop."), value)
                except PySparkException as error:
                    raise UsageError(f"{name}={value}: {str(error).splitlines()[0]}") from None
    register(made)
    return made


def hadoop_of(spark: SparkSession) -> tuple[Any, Any]:
    """Returns Hadoop of a session: (py4j's view of a JVM, its org.apache.hadoop.conf.Configuration).

    Spark Connect gives no access to a JVM: this process starts one, with the settings of the session.
    """
    if not is_connect(spark):
        return spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    jvm, settings = hadoop({})
    for name, value in spark.conf.getAll.items():
        settings.set(name, value)
    return jvm, settings


def hadoop(conf: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> tuple[Any, Any]:
    """Returns Hadoop without a session, like hadoop_of.

    Args:
        conf: settings of Spark: spark.hadoop.* are set in Hadoop, spark.jars* add file systems.

    Raises:
        UsageError: Spark's packages or a Java are missing.
    """
    check_installed()
    _prepare(environ, conf)
    if not logging.getLogger().handlers:  # else py4j logs a traceback when a timeout interrupts a call
        logging.getLogger().addHandler(logging.NullHandler())
    with private_umask():
        return _hadoop({**conf, _DRIVER_OPTIONS: _driver_options(conf)})


def _hadoop(conf: Mapping[str, str]) -> tuple[Any, Any]:
    """Returns Hadoop of this process's JVM, like hadoop_of; starts the JVM with these settings if it does not run."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))
    jvm: Any = SparkContext._jvm
    settings = jvm.org.apache.spark.SparkConf()
    for name, value in conf.items():
        settings.set(name, value)
    return jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings)


def interpreters(environ: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the Python of workers and driver: that of the settings, of the environment, else this interpreter.

    Another interpreter needs this version of Python and bkctl's packages. Executors on other machines may have it
    at another path.
    """
    workers = conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable
    driver = conf.get("spark.pyspark.driver.python") or environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable
    return {"PYSPARK_PYTHON": workers, "PYSPARK_DRIVER_PYTHON": driver}


def _prepare(environ: Mapping[str, str], conf: Mapping[str, str]) -> None:
    """Sets the environment for the start of Spark's JVM: JAVA_HOME and the Python of workers and driver."""
    java = find_java(environ)
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    os.environ.update(interpreters(environ, conf))
    logging.getLogger("py4j").setLevel(logging.ERROR)


def _log_settings() -> str:
    """Writes a log4j configuration that logs errors only; returns its path. It is deleted when this process exits.

    The gateway's logger has the level of the root logger, because Spark logs a message if they differ. The logger of
    SparkContext is off, because its errors are raised in Python. An error is logged in one line without its stack
    trace: the exception is raised in Python too, and bkctl's own error has it.
    """
    folder = tempfile.mkdtemp(prefix="bkctl-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "log4j2.properties"
    path.write_text(_LOG_SETTINGS)
    return str(path)


def quieten(spark: SparkSession) -> None:
    """Turns off the log of Spark after an interrupt, because the jobs that it ended fail as expected.

    With Spark Connect, whose log is that of the server, interrupts the jobs of the session.
    """
    with suppress(Exception):  # the session may have ended already
        if is_connect(spark):
            spark.interruptAll()
            return
        spark.sparkContext.setLogLevel(_NO_LOG)


def parallelism(spark: SparkSession) -> int:
    """Returns the number of tasks that run at once, from Spark."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id

    return int(spark.range(TASKS_MAX).select(spark_partition_id()).distinct().count())  # a range has one for each


def register(spark: SparkSession) -> None:
    """Registers the data sources `bookkeeper.*` in a session and enables the push-down of filters.

    Push-down is off by default, and Spark rejects a source that supports filters while it is off.
    """
    from bkinspect.audit.sources import all_sources

    spark.conf.set(FILTERS, "true")
    for source in all_sources():
        spark.dataSource.register(source)


def packages() -> list[Path]:
    """Returns the folders that executors need on their Python path if bkctl is not installed there."""
    import bkctl
    import bkinspect

    return [Path(package.__path__[0]) for package in (bkctl, bkinspect)]
