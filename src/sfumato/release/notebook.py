# SPDX-License-Identifier: Apache-2.0
"""A notebook that makes the plan again from its spec and reads what was released.

Plain JSON (nbformat 4.5), so that writing it needs no notebook software. Running it touches no data
and spends nothing: the plan is public arithmetic, and the answers are those already released.
"""

from __future__ import annotations

import json
from pathlib import Path

from sfumato.release.export import replaced

__all__ = [
    "write_notebook",
]


_CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        "# Private answers\n\nThe first half makes the plan again from its spec. It reads no data "
        "and spends nothing. The second half reads the answers that were released.",
    ),
    (
        "code",
        "import json\nfrom pathlib import Path\n\nimport pandas as pd\n\n"
        "from sfumato.cli.spec import read_spec\n"
        "from sfumato.release.charts import candidates_chart, interval_bars\n\n"
        "SPEC = Path({spec})\nRELEASED = Path({directory})",
    ),
    (
        "markdown",
        "## The plan\n\nWhat is asked, how it is asked, and how large the errors will be.",
    ),
    ("code", "plan = read_spec(SPEC).plan()\nplan"),
    (
        "code",
        "forecast = pd.DataFrame(\n"
        "    [(g.name, g.queries, g.rmse, g.largest) for g in plan.groups],\n"
        '    columns=["group", "answers", "typical error", "largest error"],\n'
        ")\nforecast",
    ),
    ("markdown", "Every mechanism that fits, with its forecast; the least error was chosen."),
    ("code", "candidates_chart(plan.candidates)"),
    ("markdown", "## The release"),
    (
        "code",
        'provenance = json.loads((RELEASED / "provenance.json").read_text(encoding="utf-8"))\n'
        'print(provenance["guarantee"])\n'
        'print("mechanism:", provenance["mechanism"])\n'
        'same = provenance["workload_sha256"] == plan.workload.digest()\n'
        'print("released with this spec:", "yes" if same else "no, the spec has changed since")',
    ),
    ("code", 'answers = pd.read_parquet(RELEASED / "answers.parquet")\nanswers.head(10)'),
    (
        "markdown",
        "The first answers with their intervals. An interval holds the true number with the "
        "probability that was asked for, 95% unless the spec says otherwise.",
    ),
    (
        "code",
        'first = answers["group"].iloc[0]\n'
        'shown = answers[answers["group"] == first].head(30)\n'
        'interval_bars(shown, "query", is_upright=False)',
    ),
    ("markdown", "What was forecast beside what was released: the standard errors agree."),
    (
        "code",
        'released = answers.groupby("group", observed=True, sort=False)["standard_error"].agg(\n'
        "    lambda errors: (errors**2).mean() ** 0.5\n"
        ")\n"
        'forecast.set_index("group").assign(released=released)',
    ),
)


def write_notebook(path: str | Path, spec_path: str | Path, release_directory: str | Path) -> None:
    """Write a notebook for a spec file and the folder where its release was saved.

    Both are put into it as given; relative ones are read from the folder it is run in.
    """
    spec, directory = _literal(spec_path), _literal(release_directory)
    cells = [
        _cell(number, kind, text.replace("{spec}", spec).replace("{directory}", directory))
        for number, (kind, text) in enumerate(_CELLS)
    ]
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def _literal(path: str | Path) -> str:
    """A path as a Python text, with slashes that every system reads."""
    return repr(Path(path).as_posix())


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {
        "cell_type": kind,
        "id": f"cell-{number:02d}",
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}
