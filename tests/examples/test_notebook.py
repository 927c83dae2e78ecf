# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from top to bottom, and the files show what they make.

Cells are run as a notebook runs them, one after the other in one namespace, the last expression of
a cell being what it shows; without a kernel, which would need ports and a time limit to start.
A notebook of the course has a heading for every item of its notes, and its cells check themselves.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import altair as alt
import pytest

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "examples" / "notes.ipynb"
COURSE = {  # the notebook of each part of the map
    "Smith and Ullman": "factorization_and_projection",
    "Nikolov": "projection_mechanism",
    "Back to linear queries": "back_to_linear_queries",
    "Wang": "sparse_vector",
    "Brown": "binary_tree",
}
NOTEBOOKS = [NOTES, *(ROOT / "examples" / "course" / f"{name}.ipynb" for name in COURSE.values())]


@pytest.fixture
def renderer():
    """The notebook chooses how charts are drawn; other tests want it as it was."""
    before = alt.renderers.active
    yield
    alt.renderers.enable(before)


def code(notebook: Path) -> list[dict]:
    cells = json.loads(notebook.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def shown_by(source: str, names: dict[str, object]) -> object:
    """Run a cell; what its last line is worth, if it is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "notebook", "exec"), names)  # noqa: S102  the notebook's own code
    return None if last is None else eval(ast.unparse(last), names)  # noqa: S307


@pytest.mark.usefixtures("renderer")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_pictures_are_those_of_the_file(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown = [shown_by("".join(cell["source"]), names) for cell in code(notebook)]
    charts = [s for s in shown if isinstance(s, alt.Chart | alt.LayerChart)]
    stored = [out for cell in code(notebook) for out in cell["outputs"]]
    assert len(charts) == sum("image/png" in out.get("data", {}) for out in stored) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_file_holds_no_error_and_nothing_of_a_machine(notebook: Path) -> None:
    outputs = [out for cell in code(notebook) for out in cell["outputs"]]
    assert [out for out in outputs if out["output_type"] == "error"] == []
    machine = ("/home/", "/root/", "/work/", "site-packages")
    assert [place for place in machine if place in notebook.read_text()] == []


def test_the_comparisons_say_where_one_way_beats_another() -> None:
    outputs = [out for cell in code(NOTES) for out in cell["outputs"]]
    printed = "".join("".join(out.get("text", "")) for out in outputs)
    assert "one query, 50 times: gamma = 1.0" in printed
    assert "the table beats noise on the queries from k = 11 on" in printed


@pytest.mark.parametrize("notes", COURSE)
def test_every_item_of_the_notes_has_its_heading_and_a_check_follows(notes: str) -> None:
    page = (ROOT / "docs" / "map.md").read_text()
    part = next(p for p in page.split("\n## ")[1:] if p.startswith(notes))
    rows = [re.split(r"(?<!\\)\|", line) for line in part.splitlines() if line.startswith("| ")]
    items = [row[1].strip() for row in rows if row[1].strip() not in ("item", "---")]
    cells = json.loads((ROOT / "examples/course" / f"{COURSE[notes]}.ipynb").read_text())["cells"]
    words = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    headings = set(re.findall(r"^## (.+)$", words, re.MULTILINE))
    assert len(items) > 5
    assert [item for item in items if item not in headings] == []
    checks = sum("assert " in "".join(c["source"]) for c in cells)
    assert checks >= 0.6 * len(items)
