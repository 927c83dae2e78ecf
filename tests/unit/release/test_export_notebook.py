# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import nbformat
import pytest
from nbclient import NotebookClient

from sfumato.errors import SfumatoError
from sfumato.release.export import write_notebook

SPEC = """
[data]
source = "people.csv"
neighbours = "add-remove"
[domain.age]
kind = "integer"
min = 20
max = 29
[domain.sex]
kind = "category"
values = ["Female", "Male"]
[[workload]]
marginals = 2
[[workload]]
prefix = "age"
by = ["sex"]
[budget]
epsilon = 1.0
delta = 1e-9
"""


def test_the_notebook_is_valid_and_names_what_it_was_given(tmp_path):
    path = tmp_path / "release.ipynb"
    write_notebook(path, "my spec's.toml", "out")
    nbformat.validate(nbformat.read(path, as_version=4))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    for text in code:
        compile(text, "cell", "exec")
    assert """SPEC = Path("my spec's.toml")""" in code[0]
    assert "RELEASED = Path('out')" in code[0]


def test_a_notebook_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(SfumatoError, match="cannot write"):
        write_notebook(tmp_path / "none" / "a.ipynb", "s.toml", "out")


def test_the_notebook_runs_and_finds_the_release_of_its_spec(tmp_path, monkeypatch):
    from sfumato.cli.spec import read_spec

    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    rows = [f"{20 + i % 10},{'Female' if i % 3 else 'Male'}" for i in range(500)]
    (tmp_path / "people.csv").write_text("\n".join(["age,sex", *rows]))
    (tmp_path / "spec.toml").write_text(SPEC)
    spec = read_spec(tmp_path / "spec.toml")
    spec.plan().release(spec.table()).save(tmp_path / "out")
    path = tmp_path / "release.ipynb"
    write_notebook(path, "spec.toml", "out")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = "".join(
        out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", [])
    )
    assert "differential privacy" in printed
    assert "released with this spec: yes" in printed
