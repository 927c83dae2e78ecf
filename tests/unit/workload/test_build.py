# SPDX-License-Identifier: Apache-2.0
"""The words with which workloads are written."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.bins import in_bins
from sfumato.workload.build import windows
from sfumato.workload.queries import Groups, Identity, Prefix
from sfumato.workload.terms import Explicit, Product
from sfumato.workload.workload import union
from tests.shared.dense import dense_workload

DOMAIN = Domain(
    [
        Integer("age", 0, 5, levels=(Level("half", ("young", "old"), (0, 0, 0, 1, 1, -1)),)),
        Category("sex", ("F", "M"), nulls="missing"),
        Boolean("smokes"),
        Boolean("drinks"),
    ]
)


def test_all_marginals_of_some_ways() -> None:
    assert [t.name for t in sf.marginals(DOMAIN, 0).terms] == ["total"]
    assert len(sf.marginals(DOMAIN, 2).terms) == 6
    assert len(sf.marginals(DOMAIN, 4)) == DOMAIN.size


def test_listed_marginals_keep_their_order_and_sort_their_attributes() -> None:
    work = sf.marginals(DOMAIN, [("sex", "age"), "smokes", []])
    assert [t.name for t in work.terms] == ["age x sex", "smokes", "total"]


def test_levels_are_asked_with_a_dot() -> None:
    work = sf.marginals(DOMAIN, [("age.half", "sex")])
    assert work.terms[0].name == "age.half x sex"
    counts = np.zeros(DOMAIN.shape)
    counts[0, 1, 0, 0], counts[4, 1, 0, 0], counts[5, 1, 0, 0] = 3, 5, 100
    assert work.evaluate(counts).tolist() == [0, 3, 0, 0, 5, 0]
    by = sf.means(DOMAIN, "smokes", by=["age.half"])
    assert by.terms[0].rows == 2
    assert isinstance(dict(by.terms[0].factors)["age"], Groups)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "ways",
    [
        *(5, -1, True, 2.0, None, "age", "age,sex", {}, [], [1, 2], [[1]], [None]),
        *([["age", "age"]], [["age", "age.half"]], [["age.half", "age"]]),
        *([["agee"]], [["age.decade"]]),
    ],
)
def test_marginals_that_cannot_be_asked(ways: object) -> None:
    with pytest.raises(WorkloadError):
        sf.marginals(DOMAIN, ways)  # type: ignore[arg-type]


def test_too_many_tables_are_refused_before_they_are_listed() -> None:
    domain = Domain({f"x{i}": 2 for i in range(100)})
    assert len(sf.marginals(domain, 2).terms) == 4_950
    with pytest.raises(TooLarge, match="100,891,344,545,564,193,334,812,497,256 tables of 50"):
        sf.marginals(domain, 50)
    with pytest.raises(TooLarge):
        sf.conjunctions(domain, 50)


def test_every_table_over_an_attribute_shares_its_query_set() -> None:
    terms = sf.marginals(DOMAIN, 2).terms
    assert terms[0].factors[0][1] is terms[1].factors[0][1]  # type: ignore[attr-defined]


def test_the_words_for_query_sets() -> None:
    words = {"age": "windows( 2 )", "sex": " identity ", "smokes": "total", "drinks": [[1, 2]]}
    work = sf.product(DOMAIN, words)
    assert work.terms[0].attributes == ("age", "sex", "drinks")
    assert len(work) == 5 * 3
    assert sf.product(DOMAIN, {"age": "groups(half)"}).terms[0].name == "age.half"
    assert sf.product(DOMAIN, {"age": Prefix(6)}).terms[0].name == "prefix age"
    assert sf.product(DOMAIN, {"age": np.eye(6)}).terms[0].rows == 6
    assert sf.product(DOMAIN, {}, "everybody").terms[0].name == "everybody"


@pytest.mark.parametrize(
    "asked",
    [
        *("", "Prefix", "prefix(2)", "groups()", "groups(third)", "windows", "windows()"),
        *("windows(0)", "windows(7)", "windows(²)", "windows(2", "windows 2)"),
        "windows(9999999999999999999)",
        *(Identity(5), [[1, 2]], [["x"] * 6], None, 3, [[1, 2], [3]], np.zeros((2, 2, 6))),
    ],
)
def test_query_sets_that_do_not_exist_are_refused(asked: object) -> None:
    with pytest.raises(WorkloadError):
        sf.product(DOMAIN, {"age": asked})  # type: ignore[dict-item]


def test_a_product_is_given_as_a_mapping() -> None:
    with pytest.raises(WorkloadError, match="query set per attribute"):
        sf.product(DOMAIN, ["age"])  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="unknown attribute"):
        sf.product(DOMAIN, {"agee": "prefix"})


def test_circular_ranges_are_all_arcs_and_the_total_once() -> None:
    domain = sf.Domain({"hour": 5, "sex": 2})
    work = sf.circular_ranges(domain, "hour")
    rows = work.terms[0].dense().astype(int).tolist()
    arcs = {tuple(int((c - a) % 5 < k) for c in range(5)) for a in range(5) for k in range(1, 6)}
    assert len(rows) == len(arcs) == 21
    assert {tuple(row) for row in rows} == arcs
    assert work.terms[0].as_product().factors[0][1].row_labels[8] == "3 to 4"  # type: ignore[union-attr]
    assert work.terms[0].as_product().factors[0][1].row_labels[9] == "4 to 0"  # type: ignore[union-attr]
    by_sex = sf.circular_ranges(domain, "hour", by=["sex"])
    assert by_sex.digest() == sf.product(domain, {"hour": "circular", "sex": "identity"}).digest()
    assert len(by_sex) == 42


def test_circular_ranges_along_an_attribute_with_missing_values_are_refused() -> None:
    domain = sf.Domain([sf.Integer("hour", 0, 23, nulls="missing")])
    with pytest.raises(sf.WorkloadError, match="in no circle"):
        sf.circular_ranges(domain, "hour")


def test_circular_ranges_are_at_their_optimum_by_symmetry() -> None:
    """All cells are alike: the bound of Li and Miklau (equal cell weights) is attained."""
    work = sf.circular_ranges(sf.Domain({"hour": 24}), "hour")
    singular = np.linalg.svd(work.terms[0].dense(), compute_uv=False)
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", cache=False)
    assert plan.gamma == pytest.approx(singular.sum() / np.sqrt(24 * len(work)), rel=2e-4)


def test_prefixes_ranges_and_windows_run_along_ordered_attributes() -> None:
    assert len(sf.prefixes(DOMAIN, "age", by=["sex", "smokes"])) == 6 * 3 * 2
    assert len(sf.ranges(DOMAIN, "age", by="sex")) == 21 * 3  # type: ignore[arg-type]
    assert len(windows(DOMAIN, "age", 4)) == 3
    assert windows(DOMAIN, "age", 4, ["sex"]).terms[0].name == "windows(4) age by sex"
    for ask in (sf.prefixes, sf.ranges, lambda d, a: windows(d, a, 1)):
        with pytest.raises(WorkloadError, match="has no order"):
            ask(DOMAIN, "sex")


@pytest.mark.parametrize("by", [["age"], ["age.half"], ["sex", "sex"], ["nobody"]])
def test_groups_must_be_other_attributes_named_once(by: list[str]) -> None:
    for ask in (sf.prefixes, sf.ranges, sf.means):
        with pytest.raises(WorkloadError):
            ask(DOMAIN, "age", by)


@pytest.mark.parametrize("width", [0, 7, 2.5, True, "2"])
def test_windows_have_a_whole_width(width: object) -> None:
    with pytest.raises(WorkloadError):
        windows(DOMAIN, "age", width)  # type: ignore[arg-type]


def test_conjunctions_are_the_marginals_of_yes_no_attributes_with_negations() -> None:
    """C(d, k) 2^k queries, as Definition 9 of the notes counts them."""
    domain = Domain({f"x{i}": 2 for i in range(5)} | {"y": 3})
    work = sf.conjunctions(domain, 3)
    assert len(work) == 10 * 8
    assert len(sf.conjunctions(domain, 2, ["x0", "x4", "x2"])) == 3 * 4
    for ways, chosen in ((0, None), (6, None), (True, None), (1, ["y"]), ("2", None)):
        with pytest.raises(WorkloadError):
            sf.conjunctions(domain, ways, chosen)  # type: ignore[arg-type]


def test_a_mean_counts_declared_values_and_nothing_else() -> None:
    """The value 0 counts; (other) and (missing) count in neither the sum nor the number."""
    domain = Domain([Integer("n", -1, 2, outside="other", nulls="missing")])
    sums, number = dense_workload(sf.means(domain, "n"))
    assert sums.tolist() == [-1, 0, 1, 2, 0, 0]
    assert number.tolist() == [1, 1, 1, 1, 0, 0]


def test_a_mean_of_a_boolean_counts_false() -> None:
    sums, number = dense_workload(sf.means(Domain([Boolean("b", nulls="missing")]), "b"))
    assert (sums.tolist(), number.tolist()) == ([0, 1, 0], [1, 1, 0])


def test_a_mean_of_values_needs_no_bins_and_says_what_it_is_made_of() -> None:
    work = sf.means(Domain([Numeric("x", (0, 1, 5), outside="other")]), "x")
    assert work.domain.names == ("x", "values of x")
    terms = [term for term in work.terms if isinstance(term, Product)]
    centred, number = (term.factors[0][1].dense().tolist() for term in terms)
    assert (centred, number) == ([[-1, 1, 0]], [[1, 1, 0]])
    (ratio,) = work.ratios
    assert (ratio.offset, ratio.scale) == (2.5, 2.5)
    assert 0 < ratio.hidden < 1e-13
    assert work.terms[0].name == "sum of (x - 2.5) / 2.5"


def test_a_mean_in_bins_takes_their_middle_and_says_what_they_hide() -> None:
    work = in_bins(sf.means(Domain([Numeric("x", (0, 1, 5), outside="other")]), "x"))
    sums, number = dense_workload(work)
    assert (sums.tolist(), number.tolist()) == ([0.5, 3, 0], [1, 1, 0])
    (ratio,) = work.ratios
    assert (ratio.hidden, ratio.scale, ratio.offset) == (2, 1, 0)
    assert work.terms[0].name == "sum of x (middles of bins)"


def test_an_integer_of_its_own_cell_is_summed_by_cells() -> None:
    domain = Domain([Integer("x", 0, 9), Integer("y", 0, 9, 5)])
    assert sf.means(domain, "x").domain == sf.sums(domain, "x").domain == domain
    assert sf.means(domain, "y").domain.names == ("x", "y", "values of y")


def test_joined_workloads_share_the_values_of_a_column_in_one_order() -> None:
    domain = Domain([Numeric("x", (0, 1)), Numeric("y", (0, 1)), Category("c", ("a", "b"))])
    parts = [sf.means(domain, "y"), sf.sums(domain, "x", by=["c"]), sf.marginals(domain, 1)]
    names = ("x", "y", "c", "values of x", "values of y")
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        assert union([parts[i] for i in order]).domain.names == names
    assert (sf.sums(domain, "x") | sf.sums(domain, "x", power=2)).domain.names[-2:] == (
        "values of x",
        "squares of x",
    )
    other = Domain([Numeric("x", (0, 2))])
    with pytest.raises(WorkloadError, match="different domains"):
        sf.means(domain, "x") | sf.means(other, "x")


def test_a_statistical_query_gives_its_own_numbers() -> None:
    domain = Domain([Category("c", ("x", "y"), outside="other", nulls="missing")])
    for values in ([0.0, 0.5], [0.0, 0.5, np.nan, np.nan], [0.0, 0.5, np.nan, 0.0]):
        sums, number = dense_workload(sf.means(domain, "c", values=values))
        assert (sums.tolist(), number.tolist()) == ([0, 0.5, 0, 0], [1, 1, 0, 0])
    sums, number = dense_workload(sf.means(domain, "c", values=[0, 0.5, 1, np.nan]))
    assert (sums.tolist(), number.tolist()) == ([0, 0.5, 1, 0], [1, 1, 1, 0])
    with pytest.raises(WorkloadError, match="neither the sum nor the"):
        sf.means(domain, "c", values=[0, 0.5, 1, 1])
    for values in ([1.0], [1.0] * 3, [[1.0, 2.0]], [np.inf, 0.0]):
        with pytest.raises(WorkloadError):
            sf.means(domain, "c", values=values)
    with pytest.raises(WorkloadError, match="is a category"):
        sf.means(domain, "c")


def test_explicit_columns_are_row_major_in_the_order_given() -> None:
    """Column 3 * sex + age: cell (age 2, sex 1) is column 5 however the domain orders them."""
    domain = Domain({"age": 3, "sex": 2})
    row = np.zeros(6)
    row[3 * 1 + 2] = 1
    counts = np.arange(6).reshape(3, 2)
    assert sf.explicit(domain, ["sex", "age"], row).evaluate(counts).tolist() == [counts[2, 1]]
    row = np.zeros(6)
    row[2 * 2 + 1] = 1
    assert sf.explicit(domain, ["age", "sex"], row).evaluate(counts).tolist() == [counts[2, 1]]


def test_explicit_takes_any_matrix() -> None:
    dense = np.array([[1.0, 0, 2.5], [0, 0, -1]])
    domain = Domain({"b": 3})
    expected = dense_workload(sf.explicit(domain, "b", dense))  # type: ignore[arg-type]
    np.testing.assert_array_equal(expected, dense)
    for given in (dense.tolist(), csr_matrix(dense), coo_matrix(dense), csr_array(dense)):
        np.testing.assert_array_equal(dense_workload(sf.explicit(domain, ["b"], given)), dense)


def test_entries_given_twice_are_added_before_they_are_rounded() -> None:
    third = csr_matrix((np.full(3, 1 / 3), np.zeros(3, dtype=int), [0, 3]), shape=(1, 3))
    work = sf.explicit(Domain({"b": 3}), ["b"], third)
    assert dense_workload(work).tolist() == [[1, 0, 0]]
    assert isinstance(work.terms[0], Explicit)
    assert work.terms[0].bits == 0


@pytest.mark.parametrize(
    ("attrs", "matrix"),
    [
        (["age"], np.ones((1, 5))),
        (["age", "age"], np.ones((1, 36))),
        (["agee"], np.ones((1, 6))),
        (["age"], np.ones((0, 6))),
        (["age"], np.ones((1, 1, 6))),
        (["age"], [[1, 2], [3]]),
        (["age"], [["a"] * 6]),
        (["age"], [[np.nan] * 6]),
        (["age"], csr_matrix([[np.inf, 0, 0, 0, 0, 0]])),
        (["age"], None),
    ],
)
def test_matrices_that_do_not_fit_are_refused(attrs: list[str], matrix: object) -> None:
    with pytest.raises(WorkloadError):
        sf.explicit(DOMAIN, attrs, matrix)


def test_tables_of_explicit_queries_that_cannot_be_held_are_refused() -> None:
    domain = Domain({"a": 10**6, "b": 10**6})
    with pytest.raises(TooLarge, match="1,000,000,000,000 numbers"):
        sf.explicit(domain, ["b", "a"], csr_matrix((1, 10**12)))


def test_an_attribute_of_any_size_can_be_totalled_and_never_listed() -> None:
    domain = Domain({"id": 10**18, "sex": 2})
    assert len(sf.product(domain, {"id": "total", "sex": "identity"})) == 2
    assert sf.marginals(domain, [["sex"]]).sensitivity(1) == 1.0
    for ask in (
        lambda: sf.marginals(domain, 1),
        lambda: sf.prefixes(domain, "id"),
        lambda: sf.means(domain, "id"),
        lambda: sf.attribute(domain, "id") < 5,
        lambda: sf.sql(domain, "SELECT COUNT(*) FROM t WHERE id < 5"),
        lambda: sf.sql(domain, "SELECT COUNT(id) FROM t"),
        lambda: sf.sql(domain, "SELECT id, COUNT(*) FROM t GROUP BY id"),
        lambda: sf.sql(domain, "SELECT SUM(id) FROM t"),
    ):
        with pytest.raises(TooLarge):
            ask()


def test_conditions_are_labelled_as_they_were_written() -> None:
    age = sf.attribute(DOMAIN, "age")
    work = sf.predicates(DOMAIN, [age > 3, "age > 3 AND sex = 'M'"])
    assert work.terms[0].labels == ("age > 3", "age > 3 AND sex = 'M'")  # type: ignore[attr-defined]
    named = sf.predicates(DOMAIN, [age > 3], ["old"])
    assert named.terms[0].labels == ("old",)  # type: ignore[attr-defined]
    assert len(sf.predicates(DOMAIN, age > 3)) == 1  # type: ignore[arg-type]
    with pytest.raises(WorkloadError):
        sf.predicates(DOMAIN, [])
    with pytest.raises(WorkloadError):
        sf.predicates(DOMAIN, [age > 3], ["a", "b"])


def test_products_are_products() -> None:
    assert isinstance(sf.means(DOMAIN, "age").terms[0], Product)
