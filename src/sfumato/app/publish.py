# SPDX-License-Identifier: Apache-2.0
"""Write a release into a folder and say what was written; shared by ``release`` and ``demo``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.show import (
    budget_document,
    certificate_in_words,
    facts,
    neighbours_in_words,
    rmse_facts,
)
from sfumato.release.provenance import constraints_in_words, cost_in_words

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.ledger.ledger import Ledger
    from sfumato.release.release import Release

__all__ = [
    "constraints_facts",
    "ledger_document",
    "ledger_in_words",
    "publish",
    "published_document",
    "published_facts",
]


def publish(
    result: Release,
    out: Path,
    level: float,
    synthetic: int | None,
    notebook_of: Path | None,
    csv: bool = False,
) -> dict[str, Path]:
    """Write the files of a release; their paths by kind.

    ``notebook_of`` is the spec that a notebook plans again, if one is wanted. The notebook names
    it from its own folder, so that both can be moved together.
    """
    from sfumato.release.notebook import write_notebook

    wanted = False if synthetic is None else synthetic
    files = result.save(out, level=level, synthetic=wanted, csv=csv)
    if notebook_of is not None:
        files["notebook"] = out / "notebook.ipynb"
        write_notebook(files["notebook"], os.path.relpath(notebook_of, out), ".")
    return files


def published_document(
    result: Release, files: dict[str, Path], book: Ledger | None, is_stored: bool
) -> dict[str, object]:
    """A release as JSON: public facts and paths, no answers (they are in the files)."""
    forecast = result.forecast
    return {
        "queries": forecast.workload.queries,
        "mechanism": forecast.mechanism,
        "rmse": forecast.rmse,
        "largest": forecast.largest_error,
        "budget": budget_document(forecast.budget),
        "cost": forecast.cost.as_json(),
        "neighbours": forecast.neighbours,
        "is_stored": is_stored,
        "intervals": result.provenance["intervals"],
        "constraints": result.provenance["constraints"],
        "ledger": ledger_document(result.provenance, book),
        "files": {kind: str(path) for kind, path in files.items()},
    }


def ledger_document(
    provenance: Mapping[str, object], book: Ledger | None
) -> dict[str, object] | None:
    """The debit of a release, and what it left."""
    if book is None:
        return None
    return {
        "path": book.place,
        "entry": provenance.get("ledger"),
        "remaining_share": float(book.remaining().share),
    }


def constraints_facts(provenance: Mapping[str, object]) -> list[tuple[str, str]]:
    """What everybody knew, in one line, if anything."""
    words = constraints_in_words(provenance)
    return [("constraints", words)] if words else []


def ledger_in_words(book: Ledger | None) -> str:
    """What is left for further releases."""
    if book is None:
        return "none: nothing remembers what was spent"
    left = float(100 * book.remaining().share)
    return f"{book.place}: {left:.4g}% of {book.budget.describe()} left"


def published_facts(
    result: Release, files: dict[str, Path], book: Ledger | None, is_stored: bool
) -> Table:
    """A release in a few lines: what was promised, how good it is, where it is."""
    forecast = result.forecast
    cost = cost_in_words(forecast.cost, forecast.budget)
    rows = [
        ("budget", forecast.budget.describe()),
        ("neighbours", neighbours_in_words(forecast.neighbours, forecast.unit)),
        ("spent", f"nothing now; {cost} when it was first released" if is_stored else cost),
        ("mechanism", forecast.mechanism),
        *rmse_facts(forecast),
        ("certificate", certificate_in_words(forecast)),
        *constraints_facts(result.provenance),
        ("intervals", str(result.provenance["intervals"])),
        ("ledger", ledger_in_words(book)),
    ]
    return facts([*rows, *((kind, str(path)) for kind, path in files.items())])
