# SPDX-License-Identifier: Apache-2.0
"""The teaching notebook runs from top to bottom, and the file shows what it makes.

Cells are run as a notebook runs them, one after the other in one namespace, the last expression of
a cell being what it shows; without a kernel, which would need ports and a time limit to start.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import altair as alt
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notes.ipynb"
STORED = json.loads(NOTEBOOK.read_text())
CODE = [cell for cell in STORED["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def renderer():
    """The notebook chooses how charts are drawn; other tests want it as it was."""
    before = alt.renderers.active
    yield
    alt.renderers.enable(before)


def shown_by(source: str, names: dict[str, object]) -> object:
    """Run a cell; what its last line is worth, if it is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)  # noqa: S102  the notebook's own code
    return None if last is None else eval(ast.unparse(last), names)  # noqa: S307


@pytest.mark.usefixtures("renderer")
def test_the_notebook_runs_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown = [shown_by("".join(cell["source"]), names) for cell in CODE]
    charts = [s for s in shown if isinstance(s, alt.Chart)]
    assert len(charts) == 8
    assert all(chart.to_dict()["mark"]["type"] == "line" for chart in charts)
    printed = capsys.readouterr().out
    assert "one query, 50 times: gamma = 1.0" in printed
    assert "the table beats noise on the queries from k = 11 on" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_file_holds_its_pictures_and_nothing_of_a_machine() -> None:
    outputs = [out for cell in CODE for out in cell["outputs"]]
    assert sum("image/png" in out.get("data", {}) for out in outputs) == 8
    assert [out for out in outputs if out["output_type"] == "error"] == []
    text = NOTEBOOK.read_text()
    assert [place for place in ("/home/", "/root/", "site-packages") if place in text] == []
