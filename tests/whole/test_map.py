# SPDX-License-Identifier: Apache-2.0
"""The map of the lecture notes leads from everything numbered to what exists."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "map.md").read_text()
CODE = re.compile(r"`([^`]+)`")

# Everything that has a number in the notes (and the questions and algorithms that have names).
NUMBERED = {
    "Smith and Ullman": [
        *("Remark 1.1", "Remark 1.2", "Exercise 1.3", "Exercise 2.1", "Definition 2.2"),
        *("Theorem 2.3", "Remark 2.4", "Definition 2.5", "Theorem 2.6", "Remark 2.7"),
        "Theorem 3.1",
    ],
    "Nikolov": [
        *("Definition 1", "Algorithm 1", "Theorem 2", "Definition 3", "Theorem 4", "Definition 5"),
        *("Definition 6", "Definition 7", "Theorem 8", "Definition 9"),
    ],
    "Back to linear queries": ["Definition of the factorization norm", "Theorem on factorization"],
    "Wang": [
        *("Definition 2.4", "Theorem 3.8", "Theorem 1.5", "Example 1", "Example 2"),
        *("AboveThreshold", "SparseVector", "Algorithm 1 (Hedge)"),
        *(f"Algorithm {i}" for i in range(1, 7)),
    ],
    "Brown": [f"Question {i}" for i in range(1, 5)],
}


def rows() -> list[tuple[str, str, str, str]]:
    """(notes, item, functions, tests) of every line of the tables with four columns."""
    found = []
    for part in PAGE.split("\n## ")[1:]:
        title = part.splitlines()[0]
        for line in part.splitlines():
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == 4 and cells[0] != "item" and "---" not in cells[0]:
                found.append((title, cells[0], cells[2], cells[3]))
    return found


ROWS = rows()


def imported(path: str) -> object:
    """What a public name stands for: one of ``sf``, of ``sf.study`` or of the audit."""
    parts = path.split(".")
    if parts[0] == "sf":
        home = sf.study if parts[1] == "study" else sf
        if parts[2 if home is sf.study else 1] not in home.__all__:
            raise AttributeError(f"{path} is not public")
        parts[0] = "sfumato"
    elif parts[0] != "sfumato_audit":
        raise ModuleNotFoundError(path)
    for at in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for name in parts[at:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@cache
def functions_of(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^\s*def (test_\w+)\(", (ROOT / path).read_text(), re.MULTILINE))


def names_test(named: str) -> bool:
    path, _, name = named.partition("::")
    return (ROOT / path).exists() and name in functions_of(path)


@pytest.mark.parametrize(("notes", "item", "functions", "tests"), ROWS, ids=lambda x: str(x)[:40])
def test_every_line_leads_to_functions_and_tests(
    notes: str, item: str, functions: str, tests: str
) -> None:
    assert CODE.findall(functions), f"{notes}, {item}: no function"
    for path in CODE.findall(functions):
        assert imported(path) is not None
    named = CODE.findall(tests)
    assert named, f"{notes}, {item}: no test"
    assert [t for t in named if not names_test(t)] == []


@pytest.mark.parametrize("notes", NUMBERED)
def test_everything_that_has_a_number_is_on_the_map(notes: str) -> None:
    items = [item for title, item, _, _ in ROWS if title.startswith(notes)]

    def is_there(wanted: str) -> bool:
        return any(re.search(rf"{re.escape(wanted)}(?![\d.]*\d)", item) for item in items)

    assert [wanted for wanted in NUMBERED[notes] if not is_there(wanted)] == []


def test_names_that_do_not_exist_are_noticed() -> None:
    assert not names_test("tests/whole/test_map.py::test_nothing")
    assert not names_test("tests/unit/test_nowhere.py::test_nothing")
    assert names_test("tests/whole/test_map.py::test_names_that_do_not_exist_are_noticed")
    for path in ("sf.study.no_such_error", "sf.run", "sfumato.plan", "no_such_package"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            imported(path)


# The table of all names: each line is run.

THRESHOLDS = np.tril(np.ones((8, 8)))
HISTOGRAM = np.array([30, 10, 40, 10, 50, 90, 20, 60]) * 1000
CODES = np.repeat(np.arange(8), HISTOGRAM)
AGES = pd.DataFrame({"age": CODES})
DOMAIN = sf.Domain({"age": 8}, records="all-inside")
PREFIXES = sf.prefixes(DOMAIN, "age")
THRESHOLD = 100_000
PURE, WITH_DELTA = {"epsilon": 1}, {"epsilon": 1, "delta": 1e-6}
MECHANISMS: dict[str, list[dict[str, object]]] = {
    "laplace_mechanism": [PURE],
    "gaussian_mechanism": [WITH_DELTA, {"rho": 0.1}, {"mu": 0.5}],
    "contingency_table": [PURE, WITH_DELTA],
    "binary_tree": [PURE, WITH_DELTA],
    "factorization_mechanism": [WITH_DELTA],
    "projection_mechanism": [WITH_DELTA],
    "above_threshold": [{**PURE, "T": THRESHOLD}, {"mu": 1, "T": THRESHOLD, "noise": "gaussian"}],
    "sparse_vector": [
        {**PURE, "T": THRESHOLD, "c": 2, "variant": v}
        for v in ("slides", "dwork-roth", "lyu-su-li")
    ],
    "numeric_sparse": [{**PURE, "T": THRESHOLD, "c": 2}],
    "exponential_mechanism": [PURE],
    "noisy_max": [PURE],
    "permute_and_flip": [PURE],
    "private_multiplicative_weights": [{**WITH_DELTA, "n": int(HISTOGRAM.sum())}],
}
RESPONSES: list[dict[str, object]] = [
    {"encoding": e, "epsilon": 1} for e in ("direct", "unary", "symmetric-unary")
]
QUANTITIES: dict[str, Callable[..., object]] = {
    "hedge": lambda: sf.study.hedge(np.random.default_rng(0).random((20, 4))),
    "multiplicative_weights": lambda: [
        sf.study.multiplicative_weights(q, HISTOGRAM, alpha=0.1) for q in (THRESHOLDS, PREFIXES)
    ],
    "sparse_vectors_compared": lambda: imported("sfumato_audit.sparse_vectors_compared")(  # type: ignore[operator]
        epsilon=1, c=2, runs=2000
    ),
    "sample_sizes": lambda: sf.study.sample_sizes(
        k=1000, cells=2**10, alpha=0.05, epsilon=1, gamma=3.0, width=20.0
    ),
    "factorization_norm": lambda q: sf.study.factorization_norm(q).value,
    "approximate_factorization_norm": lambda q: (
        sf.study.approximate_factorization_norm(q, alpha=0.1).value
    ),
    "gaussian_width": lambda q: sf.study.gaussian_width(q, draws=400).value,
    "mean_width": lambda q: sf.study.mean_width(q, draws=400).value,
    "separation_oracle": lambda q: sf.study.separation_oracle(q, np.linspace(1, 0, 8)).offset,
}


def names_at_once() -> list[str]:
    """The names of the table of all of them, without their package."""
    part = next(p for p in PAGE.split("\n## ") if p.startswith("Every name at once"))
    lines = [line for line in part.splitlines() if line.startswith("| ") and "---" not in line]
    return [CODE.findall(line.split(" | ")[1])[0].rpartition(".")[2] for line in lines[1:]]


def test_every_name_of_the_table_is_public_and_run_below() -> None:
    table = names_at_once()
    assert sorted(table) == sorted([*MECHANISMS, *QUANTITIES, "randomized_response"])
    assert [n for n in table if n not in sf.study.__all__] == ["sparse_vectors_compared"]


@pytest.mark.parametrize(
    ("name", "options"), [(n, o) for n, every in MECHANISMS.items() for o in every], ids=str
)
def test_every_mechanism_runs_on_arrays_records_and_tables_with_and_without_a_ledger(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    mechanism = getattr(sf.study, name)
    is_choice = name in ("exponential_mechanism", "noisy_max", "permute_and_flip")
    matrix = np.eye(8) if is_choice else THRESHOLDS
    workload = sf.marginals(DOMAIN, 1) if is_choice else PREFIXES
    whose = {"neighbours": "replace-one"}
    for outcome in (
        mechanism(matrix, HISTOGRAM, **options, **whose),
        mechanism(matrix, records=CODES, **options, **whose),
        mechanism(workload, AGES, **options, **whose),
    ):
        assert outcome.cost is not None
        assert 0 < outcome.epsilon <= float(options.get("epsilon", 100)) * (1 + 1e-9)  # type: ignore[arg-type]
        assert outcome.error_bound(0.05) > 0
        assert outcome.noise
        assert "yours to remember" in repr(outcome)
    total = sf.Budget(epsilon=20, delta=1e-3)
    for kind, call in {
        "array": lambda **o: mechanism(matrix, HISTOGRAM, **options, **whose, **o),
        "table": lambda **o: mechanism(workload, AGES, **options, **whose, **o),
    }.items():
        book = sf.Ledger.create(tmp_path / kind, total, "made up", neighbours="replace-one")
        first = call(ledger=book, name="made up")
        spent = book.spent()
        again = call(ledger=book, name="made up")
        assert spent.share > 0
        assert spent == book.spent()
        assert np.array_equal(
            np.asarray(first.answers, float), np.asarray(again.answers, float), True
        )


@pytest.mark.parametrize("options", RESPONSES, ids=str)
def test_randomized_response_runs_on_bits_codes_and_tables_with_and_without_a_ledger(
    options: dict[str, object], tmp_path: Path
) -> None:
    respond = sf.study.randomized_response
    some = CODES[::1000]
    book = sf.Ledger.create(
        tmp_path / "a", sf.Budget(epsilon=5), "made up", neighbours="replace-one"
    )
    small = AGES.iloc[::1000]
    guarded = {"ledger": book, "name": "made up"}
    for outcome in (
        respond(some, THRESHOLDS, **options),  # type: ignore[arg-type]
        respond(small, PREFIXES, **options),  # type: ignore[arg-type]
        respond(some, THRESHOLDS, **options, **guarded),  # type: ignore[arg-type]
        respond(small, PREFIXES, **options, **guarded),  # type: ignore[arg-type]
    ):
        assert outcome.n == len(some)
        assert np.abs(outcome.answers - THRESHOLDS @ (HISTOGRAM // 1000)).max() <= (
            outcome.error_bound(1e-9)
        )
    assert book.spent().pure_epsilon == 2
    bits = respond(some > 3, np.ones((1, len(some))), epsilon=1, over="persons")
    assert abs(bits.answers[0] - (some > 3).sum()) <= bits.error_bound(1e-9)


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_quantity_is_the_same_of_a_matrix_and_of_a_workload(name: str) -> None:
    quantity = QUANTITIES[name]
    if quantity.__code__.co_argcount == 0:
        assert quantity() is not None
        return
    of_matrix, of_workload = quantity(THRESHOLDS), quantity(PREFIXES)
    assert of_workload == pytest.approx(of_matrix, rel=0.25 if "width" in name else 1e-3)
