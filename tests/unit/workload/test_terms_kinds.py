# SPDX-License-Identifier: Apache-2.0
"""What terms and query sets say of themselves, against their matrices; and who asks their kind."""

from __future__ import annotations

import ast
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import sfumato
import sfumato as sf
from sfumato.solve.minimax_orbits import Reweighted
from sfumato.strategy.matrix import dense
from sfumato.strategy.splits import Centred
from sfumato.strategy.trees import Tree, Wavelet
from sfumato.workload.queries import Groups, Identity, Intervals, Matrix, Prefix, QuerySet, Ranges
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from tests.shared.dense import dense_queries
from tests.unit.workload.test_queries import REGISTRY as QUERIES
from tests.unit.workload.test_terms import REGISTRY as TERMS

KINDS_ASKED = 36
"""Lines of ``src`` that ask for the kind of a term or a query set, at most.

Most of what is left belongs to a strategy and the one kind that it measures (a rooted chain, a
piece, a mixture), or to closed forms that are known for prefixes or for ranges only.
"""

SETS: dict[str, QuerySet] = {
    **QUERIES,
    "intervals": Intervals(5, np.array([0, 1, 1]), np.array([2, 4, 2])),
    "groups in the order of the cells": Groups(3, "g", ("a", "b", "c"), (0, 1, 2)),
    "centred": Centred(4),
    "tree": Tree(5, 2),
    "wavelet": Wavelet(4, (1, 2, 3)),
    "reweighted": Reweighted(4, Prefix(4), np.array([0.25, 1.0, 2.0, 3.0])),
}
sets = pytest.mark.parametrize("q", SETS.values(), ids=SETS.keys())
terms = pytest.mark.parametrize("term", TERMS.values(), ids=TERMS.keys())


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*(subclasses(k) for k in kind.__subclasses__()))


def names(node: ast.AST) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return {n.id if isinstance(n, ast.Name) else n.attr for n in found}


def asks_kind(node: ast.AST, kinds: set[str]) -> bool:
    """``isinstance(x, K)``, ``type(x) is K`` or ``case K()`` for a kind K."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        is_asked = node.func.id in ("isinstance", "issubclass")
        return is_asked and bool(names(node.args[1]) & kinds)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        calls = [s.func for s in sides if isinstance(s, ast.Call) and isinstance(s.func, ast.Name)]
        return any(f.id == "type" for f in calls) and bool(names(node) & kinds)
    return isinstance(node, ast.MatchClass) and bool(names(node.cls) & kinds)


def test_few_lines_ask_for_the_kind_of_a_term_or_a_query_set() -> None:
    """Terms and query sets answer for themselves; a new kind then needs no change elsewhere."""
    root = Path(sfumato.__file__).parents[1]
    trees = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    classes = [n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    kinds, more = {"Term", "QuerySet"}, True
    while more:
        found = {c.name for c in classes if set().union(*map(names, c.bases)) & kinds}
        kinds, more = kinds | found, not found <= kinds
    lines = {
        f"{path.relative_to(root)}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.pattern) and asks_kind(node, kinds)
    }
    assert len(lines) <= KINDS_ASKED, sorted(lines)


@sets
def test_what_a_query_set_is_known_to_be_is_true(q: QuerySet) -> None:
    matrix = q.dense()
    n = q.size
    if q.is_identity:
        assert np.array_equal(matrix, np.eye(n))
    if q.is_total:
        assert np.array_equal(matrix, np.ones((1, n)))
    if q.is_disjoint:
        assert set(np.unique(matrix)) <= {0.0, 1.0}
        assert (matrix.sum(axis=0) <= 1).all()
    if q.separates_cells:
        assert np.linalg.matrix_rank(matrix) == n
    if q.holds_prefixes:
        assert q.intervals() is not None
        assert {tuple(r) for r in Prefix(n).dense()} <= {tuple(r) for r in matrix}
    if q.is_mirrored:
        assert {tuple(r) for r in matrix} == {tuple(r[::-1]) for r in matrix}
    if q.is_exact:
        steps = np.ldexp(matrix, q.fraction_bits)
        assert np.array_equal(steps, np.rint(steps))
    assert 1 <= q.rank_bound() <= max(int(np.linalg.matrix_rank(matrix)), 1)


@sets
def test_classes_of_cells_are_those_of_the_columns(q: QuerySet) -> None:
    matrix, gram = q.dense(), q.gram()
    classes, exchanged = q.cell_classes(), q.exchange_classes()
    for i, j in combinations(range(q.size), 2):
        if classes is not None and classes[i] == classes[j]:
            assert np.array_equal(matrix[:, i], matrix[:, j])
        if exchanged[i] == exchanged[j]:
            order = np.arange(q.size)
            order[[i, j]] = j, i
            assert np.allclose(gram[np.ix_(order, order)], gram, rtol=1e-12)


@sets
def test_inner_products_and_diameters_bound_those_of_the_columns(q: QuerySet) -> None:
    matrix = q.dense()
    gram = matrix.T @ matrix
    least, greatest = q.inner_products() or (0.0, 0.0)
    slack = 1e-9 * gram.max() + 1e-12
    assert least <= gram.min() + slack
    assert greatest >= gram.max() - slack
    pairs = matrix[:, :, None] - matrix[:, None, :]
    squares, sums = (pairs**2).sum(axis=0).max(), np.abs(pairs).sum(axis=0).max()
    found = q.squared_diameter()
    assert found is not None
    assert squares <= found * (1 + 1e-9) + 1e-12
    in_l1 = q.l1_diameter()
    assert in_l1 is None or sums <= in_l1 * (1 + 1e-12)


@sets
def test_the_inverse_of_the_gram_matrix_is_tridiagonal_where_said(q: QuerySet) -> None:
    bands = q.inverse_gram()
    if bands is None:
        assert not q.holds_prefixes
        return
    inverse = np.diag(bands[0]) + np.diag(bands[1], 1) + np.diag(bands[1], -1)
    assert np.allclose(inverse @ q.gram(), np.eye(q.size))


@sets
def test_cells_come_back_from_the_answers_where_they_are_determined(q: QuerySet) -> None:
    x = np.arange(1.0, q.size + 1)
    found = q.cells_from(np.asarray(q.apply(x), dtype=np.float64))
    if found is None:
        return
    if q.label_kind == "groups":
        assert np.allclose(q.apply(found), q.apply(x))
    else:
        assert np.allclose(found, x)


@sets
def test_integer_rows_are_the_matrix_in_steps(q: QuerySet) -> None:
    if q.is_exact:
        rows = np.array(list(q.integer_rows()))
        assert np.array_equal(np.ldexp(rows, -q.fraction_bits), q.dense())


@sets
def test_query_sets_are_written_and_named(q: QuerySet) -> None:
    assert np.array_equal(q.simplest().dense(), q.dense())
    assert json.loads(json.dumps(q.canonical())) == q.canonical()
    form, body = q.written()
    assert json.dumps(form)
    assert isinstance(body, bytes)
    assert "age" in q.titled("age")
    assert len(q.row_labels) in (0, q.rows)
    assert q.is_same(q)
    assert q.key == q.key
    if q.label_kind in ("cells", "ends", "ranges", "total"):
        assert q.intervals() is not None


def test_equal_keys_mean_equal_queries() -> None:
    for p, q in combinations(SETS.values(), 2):
        if p.size == q.size and (p.key == q.key or p.is_same(q)):
            assert np.array_equal(p.dense(), q.dense())
    assert Ranges(4).key == Ranges(4).key
    assert Groups(2, "g", ("a",), (0, 0)).is_same(Groups(2, "h", ("b",), (0, 0)))
    assert not Matrix.of([[1, 2]]).is_same(Matrix.of([[1, 2]]))  # not looked at


@pytest.mark.parametrize("measured", [Identity(4), Tree(4, 2)], ids=["cells", "tree"])
def test_estimates_from_measured_cells_and_trees_have_these_variances(measured: QuerySet) -> None:
    inverse = np.linalg.pinv(measured.dense())
    y = np.arange(1.0, measured.rows + 1)
    assert np.allclose(measured.least_squares(y), inverse @ y)
    assert np.allclose(measured.transposed(np.ones(4)), inverse.T @ np.ones(4))
    for asked in (Prefix(4), Ranges(4), Matrix.of([[1, 2, 0, -1]])):
        rows = dense_queries(asked) @ inverse
        assert np.allclose(measured.row_variances(asked), (rows**2).sum(axis=1))
        assert np.isclose(measured.total_variance(asked), (rows**2).sum())
        assert measured.maximum_variance(asked) >= (rows**2).sum(axis=1).max() - 1e-12
        assert np.allclose(measured.row_fourths(asked), (rows**4).sum(axis=1))


def test_cells_are_not_estimated_from_queries_that_are_only_asked() -> None:
    with pytest.raises(TypeError, match="prefix"):
        Prefix(3).least_squares(np.ones(3))
    with pytest.raises(TypeError, match="prefix"):
        Prefix(3).row_variances(Identity(3))


@terms
def test_terms_on_some_cells_are_columns_of_their_matrix(term: Term) -> None:
    matrix = term.dense()
    units = np.eye(int(np.prod(term.shape)), dtype=np.int64)
    expected = [term.answer(u.reshape(term.shape)) for u in units]
    assert np.array_equal(matrix, np.array(expected).T)
    cells = [np.arange(0, size, 2) for size in term.shape]
    whole = np.arange(matrix.shape[1]).reshape(term.shape)
    some = matrix[:, whole[np.ix_(*cells)].reshape(-1) if cells else whole.reshape(-1)]
    assert np.array_equal(term.dense_at(cells), some)
    assert np.array_equal(Term.dense_at(term, cells), some)
    rng = np.random.default_rng(1)
    table, y = rng.normal(size=[len(c) for c in cells]), rng.normal(size=term.rows)
    applied = some @ table.reshape(-1)
    for kind in (type(term), Term):
        assert np.allclose(kind.apply_at(term, cells, table), applied)
        assert np.allclose(kind.adjoint_at(term, cells, y).reshape(-1), some.T @ y)
        squared = kind.gram_apply_at(term, cells, table)
        assert np.allclose(squared.reshape(-1), some.T @ applied)
    grown = rng.normal(size=term.shape)
    gram = matrix.T @ (matrix @ grown.reshape(-1))
    assert np.allclose(term.gram_apply(grown).reshape(-1), gram)
    assert np.isclose(term.squared_norm(), (matrix**2).sum())


@terms
def test_what_a_term_says_of_its_kind_is_true(term: Term) -> None:
    product, conditions = term.as_product(), term.as_conditions()
    assert (product is term) == isinstance(term, Product)
    assert len(conditions) == (term.rows if isinstance(term, Predicates) else 0)
    assert int(np.prod(term.row_shape)) == term.rows
    assert len(term.row_labels) in (0, term.rows)
    if term.is_table:
        assert np.array_equal(term.dense(), np.eye(term.rows))
    assert not term.is_wide
    assert term.has_small_classes
    assert term.sources() == (term,)
    answers = np.arange(term.rows)
    assert term.combine([answers], fits=True) is answers
    written = term.canonical({})
    assert json.loads(json.dumps(written)) == written


@terms
@pytest.mark.parametrize("p", [1, 2])
def test_arrays_over_classes_are_those_over_cells(term: Term, p: int) -> None:
    for (names_of, values, class_of), (same, cells) in zip(
        term.class_factors(p), term.column_factors(p), strict=True
    ):
        assert names_of == same
        spread = values if class_of is None else values[np.ix_(*class_of)]
        assert np.array_equal(spread, cells)


@terms
def test_cells_of_one_class_have_equal_coefficients(term: Term) -> None:
    matrix = term.dense().reshape(term.rows, *term.shape)
    for axis, name in enumerate(term.attributes):
        classes = term.cell_classes(name)
        slices = np.moveaxis(matrix, 1 + axis, 0)
        for i, j in combinations(range(len(slices)), 2):
            if classes is not None and classes[i] == classes[j]:
                assert np.array_equal(slices[i], slices[j])


@terms
def test_diameters_of_terms_bound_those_of_their_columns(term: Term) -> None:
    matrix = term.dense()
    pairs = matrix[:, :, None] - matrix[:, None, :]
    squares, sums = term.squared_diameter(), term.l1_diameter()
    assert squares is None or (pairs**2).sum(axis=0).max() <= squares * (1 + 1e-9) + 1e-12
    assert sums is None or np.abs(pairs).sum(axis=0).max() <= sums * (1 + 1e-12)


def test_a_mixture_combines_the_answers_of_its_sources() -> None:
    domain = sf.Domain({"a": 4, "b": 3})
    work = sf.predicates(domain, ["a < 2 or b = 1", "a >= 1 and not b = 0"])
    work = work | sf.marginals(domain, [("a",)])
    term = dense(work).blocks[0].term
    table = np.arange(12).reshape(4, 3)
    parts = [np.asarray(t.apply(_summed(table, t.attributes))) for t in term.sources()]
    assert term.sources() != (term,)
    for fits in (True, False):
        assert term.combine(parts, fits).tolist() == term.apply(table).tolist()
    with pytest.raises(TypeError, match="no canonical form"):
        term.canonical({})


def _summed(table: np.ndarray, names_of: tuple[str, ...]) -> np.ndarray:
    return table.sum(axis=tuple(i for i, n in enumerate("ab") if n not in names_of))


def test_every_kind_of_asked_term_is_tried() -> None:
    assert {type(t) for t in TERMS.values()} == {Product, Explicit, Predicates}
    own = {k for k in subclasses(QuerySet) if k.__module__ == QuerySet.__module__}
    assert {k for k in own if not k.__abstractmethods__} <= {type(q) for q in SETS.values()}
