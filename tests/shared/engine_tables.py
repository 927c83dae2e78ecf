# SPDX-License-Identifier: Apache-2.0
"""The same rows as a table of PostgreSQL, of Spark and of DuckDB."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["SMALL_SPARK", "in_postgres", "on_all_engines"]

SMALL_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Every query of a test runs once: compiling it for long would take longer than running it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

_POSTGRES = {
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamptz",
}


def in_postgres(address: str, name: str, rows: pa.Table, **types: str) -> str:
    """The source of a new table with these rows; ``types`` replace those of some columns."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as server:
        columns = ", ".join(
            f'"{f.name}" {types.get(f.name) or _POSTGRES.get(str(f.type)) or "numeric"}'
            for f in rows.schema
        )
        server.execute(f"DROP TABLE IF EXISTS {name} CASCADE; CREATE TABLE {name} ({columns})")
        with server.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)
    return f"{address}::{name}"


def on_all_engines(rows: pa.Table, name: str, postgres: str, folder: Path) -> dict[str, object]:
    """The source of the rows on each engine."""
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path)
    return {
        "duckdb": str(path),
        "postgres": in_postgres(postgres, name, rows),
        "spark": f"spark:{path}",
    }
