# SPDX-License-Identifier: Apache-2.0
"""Interactions add up to the queries, see no average, and are whole."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.strategy import query_interactions
from sfumato.strategy.query_interactions import collected, kronecker, query_groups
from sfumato.strategy.strategy_limits import StrategyLimits
from tests.unit.strategy.test_interactions import SMALL, mixed

WEIGHTS = {"a": np.array([1, 2, 3, 1]), "b": np.array([3, 1, 2]), "c": np.array([1, 1, 4, 2, 1])}


def test_interactions_add_up_to_the_queries() -> None:
    """Over all cells: each part repeated along the attributes that it does not look at."""
    work = mixed() | sf.product(SMALL, {"a": "prefix", "b": [[1, -2, 0.5]], "c": "ranges"})
    groups = query_groups(work)
    whole = {g: np.zeros((len(group.rows), *SMALL.shape)) for g, group in enumerate(groups)}
    for names, one in collected(groups, WEIGHTS).items():
        shape = [SMALL[n].size if n in names else 1 for n in SMALL.names]
        for reader in one.readers:
            tables = dict(zip(reader.inside, one.parts[reader.part].tables, strict=True))
            tables |= {f: average[:, None] for f, average in reader.outside}
            rows = kronecker(tables[f] for f in sorted(tables)) / reader.divisor
            whole[reader.group] += rows.reshape(-1, *shape)
    for g, group in enumerate(groups):
        table = kronecker(f.table for f in group.factors)
        shape = [SMALL[n].size if n in group.names else 1 for n in SMALL.names]
        assert np.allclose(whole[g], table.reshape(-1, *shape))


def test_parts_are_whole_and_see_no_average() -> None:
    for names, one in collected(query_groups(mixed()), WEIGHTS).items():
        for part in one.parts:
            rows = part.rows
            assert (rows == np.rint(rows)).all()
            table = rows.reshape(-1, *(SMALL[n].size for n in names))
            for axis, name in enumerate(names):
                assert np.abs(np.tensordot(table, WEIGHTS[name], (axis + 1, 0))).max() == 0


def test_equal_parts_of_different_groups_are_one() -> None:
    domain = sf.Domain({"a": 4, "b": 4, "c": 4})
    work = sf.marginals(domain, 2) | sf.marginals(domain, 1)
    equal = {n: np.ones(4, dtype=np.int64) for n in domain.names}
    sets = collected(query_groups(work), equal)
    assert [len(one.parts) for one in sets.values()] == [1] * 7
    assert len({one.key for one in sets.values() if len(one.names) == 2}) == 1
    assert [len(one.readers) for one in sets.values()] == [6, 3, 3, 3, 1, 1, 1]


def test_more_coefficients_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_interactions, "LIMITS", StrategyLimits(interaction_entries=50))
    with pytest.raises(TooLarge, match="50 different coefficients"):
        query_groups(mixed())
