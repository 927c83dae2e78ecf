# SPDX-License-Identifier: Apache-2.0
"""Releases and sessions in a real Jupyter kernel, with and without the package of its widgets."""

from __future__ import annotations

import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

import sfumato as sf
from sfumato.errors import TableError
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.tables import open_table

BLOCKED = """
import sys
sys.modules["ipywidgets"] = None
"""
DOMAIN = """
from pathlib import Path
import sfumato as sf
from sfumato.domain.attributes import Category, Integer
domain = sf.Domain([Integer("age", 20, 29), Category("sex", ["Female", "Male"])])
size = Path("people.csv").write_text(
    "age,sex\\n" + "".join(f"{20 + i % 10},{'Female' if i % 3 else 'Male'}\\n" for i in range(500))
)
"""
RELEASE = """
plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1))
release = plan.release("people.csv")
print("released", len(release.answers("age")))
"""
MEMORY = """
import pandas
release = plan.release(pandas.read_csv("people.csv"))
print("released from memory", len(release.answers("age")))
"""
SESSION = """
session = sf.open_session("people.csv", domain=domain, budget=sf.Budget(epsilon=1))
answer = session.ask("SELECT COUNT(*) FROM data WHERE sex = 'Male'")
print("asked", type(answer).__name__)
"""
BAR = """
import duckdb
def bar(connection):
    return connection.execute("SELECT current_setting('enable_progress_bar')").fetchone()[0]
from sfumato.vault.duckdb import DuckDB
print("bar", bar(duckdb.connect()), bar(DuckDB.start().backend.con))
"""


def ran(folder, *cells):
    """What the cells print, run one after the other in a kernel of their own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(folder)}}).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in shown if out.output_type in ("display_data", "error")]
    return "".join(out.get("text", "") for out in shown if out.get("name") == "stdout")


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_kernel_releases_and_asks_without_a_bar_with_and_without_widgets(tmp_path, has_widgets):
    start = "import ipywidgets" if has_widgets else BLOCKED
    said = ran(tmp_path, start, DOMAIN, RELEASE, MEMORY, SESSION, BAR)
    assert "released 10" in said
    assert "released from memory 10" in said
    assert "asked" in said
    assert f"bar {has_widgets} False" in said  # of DuckDB, and of the engine


def test_an_engine_that_does_not_start_says_why(monkeypatch):
    def start():
        raise OSError("no file like libfoo.so\nand more")

    monkeypatch.setattr(DuckDB, "connect", start)
    with pytest.raises(TableError, match=r"installation \(OSError: no file like libfoo\.so\)$"):
        open_table(pa.table({"x": [1]}))


def test_a_query_that_names_no_column_says_which(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"sex": ["Female"]}), path)
    with pytest.raises(TableError, match='column "gender" not found'):
        open_table(sf.SqlSource(path, "SELECT gender FROM data"))
    with pytest.raises(TableError, match="syntax error"):
        open_table(sf.SqlSource(path, "SELEC sex FROM data"))


def test_a_reader_in_a_query_that_chokes_on_a_value_does_not_show_it(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"sex": ["Female"]}), path)
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}\n{"a": secret}\n')
    with pytest.raises(TableError, match=r"are the table data$"):
        open_table(sf.SqlSource(path, f"SELECT * FROM read_json('{other}')"))
