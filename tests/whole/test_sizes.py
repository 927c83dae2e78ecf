# SPDX-License-Identifier: Apache-2.0
"""Giant inputs are refused in our own words, with little memory and few steps.

Steps are calls of functions, so that the outcome does not depend on the machine; the seconds
are shown by ``python -m bench sizes``.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

import sfumato as sf
from bench import sizes
from sfumato.domain.domain import domain_from
from sfumato.errors import SchemaError, TooLarge
from sfumato.strategy.base import minimum_measured
from sfumato.toml import parse_toml

STEPS = 150_000  # calls, at a fraction of a microsecond each


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    sizes.close()


def steps_of(action: Callable[[], object]) -> int:
    """The functions that an action calls in this thread."""
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return made


def bytes_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("giant", sizes.GIANTS, ids=lambda g: f"{g.where}: {g.what}")
def test_a_giant_input_is_refused_with_little_memory_and_few_steps(giant: sizes.Giant) -> None:
    refuse = giant.make()
    found = sizes.refused(refuse)  # and whatever is loaded on first use is loaded
    assert found.words
    assert found.status in (None, 413, 422)
    assert bytes_of(lambda: sizes.refused(refuse)) < sizes.BYTES
    assert steps_of(lambda: sizes.refused(refuse)) < STEPS


def test_what_is_not_refused_is_noticed() -> None:
    """The twin: an input that is taken, one that takes memory, and one that takes steps."""
    with pytest.raises(AssertionError, match="not refused"):
        sizes.refused(lambda: sf.marginals(sizes.SMALL, 1))
    assert bytes_of(lambda: bytearray(2 * sizes.BYTES)) > sizes.BYTES
    assert steps_of(lambda: [len(str(i)) for i in range(STEPS)]) > STEPS


def test_a_long_list_of_wrong_values_takes_little_memory() -> None:
    for line in (
        'kind = "category"\nvalues = [{}]'.format(", ".join(["0.5"] * 30_000)),
        'kind = "numeric"\nedges = [{}]'.format(", ".join(["'x'"] * 30_000)),
        'kind = "category"\nvalues = [{}]'.format(", ".join(["'x'"] * 30_000)),
    ):

        def read(text: str = f"[domain.a]\n{line}") -> None:
            with pytest.raises(SchemaError, match="line 3"):
                domain_from(parse_toml(text))

        assert bytes_of(read) < sizes.BYTES / 3


def test_the_least_number_of_measured_values_is_the_rank_or_below_it() -> None:
    import numpy as np

    domain = sf.Domain({"a": 3, "b": 4, "c": 2})
    works = [
        sf.marginals(domain, 1),
        sf.marginals(domain, 2),
        sf.marginals(domain, 3),
        sf.prefixes(domain, "b", by=["c"]) | sf.marginals(domain, 2),
        sf.ranges(domain, "b", by=["a"]) | sf.windows(domain, "b", 2, by=["c"]),
        sf.windows(domain, "b", 3) | sf.predicates(domain, ["a = 1 OR b = 2"]),
    ]
    for work in works:
        cells = np.eye(domain.size).reshape(domain.size, *domain.shape)
        matrix = np.array([work.evaluate(cell) for cell in cells]).T
        rank = np.linalg.matrix_rank(matrix)
        assert 1 <= minimum_measured(work) <= rank
    assert minimum_measured(works[2]) == domain.size
    # Three interactions of 4 x 4 each; 13 more come from the attributes by themselves.
    pairs = sf.marginals(sf.Domain({"a": 5, "b": 5, "c": 5}), 2)
    assert minimum_measured(pairs) == 3 * 4 * 4
    assert minimum_measured(pairs, enough=20) == 25  # one table is enough to know


def test_a_workload_beyond_what_can_be_measured_is_refused_before_a_mechanism_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sfumato.planning import planner

    def built(*_: object) -> None:
        raise AssertionError("a mechanism was built")

    monkeypatch.setattr(planner.Strategies, "_built", built)
    domain = sf.Domain({f"a{i}": 1000 for i in range(4)})
    with pytest.raises(TooLarge, match="need at least"):
        sf.plan(sf.marginals(domain, 3), sf.Budget(epsilon=1, delta=1e-9))
    with pytest.raises(TooLarge, match="need at least"):
        sf.plan(sf.marginals(domain, 3), error=10)
    with pytest.raises(AssertionError, match="was built"):
        sf.plan(sf.marginals(domain, 2), sf.Budget(epsilon=1, delta=1e-9))
