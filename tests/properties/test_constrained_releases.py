# SPDX-License-Identifier: Apache-2.0
"""Releases with any constraints keep them, and published values lie in their intervals."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 3, "b": 2, "c": 2})
WORK = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a", by=["c"])
FORECASTS = {m: planned(WORK, m) for m in ("gaussian-table", "laplace-table")}
SETS = list(chain(*(combinations(DOMAIN.names, size) for size in range(4))))
CONDITIONS = ["a = 0 and b = 1", "b = 0 and c = 1", "a = 2", "a = 1 and b = 0 and c = 0"]

counts = st.lists(st.integers(0, 9), min_size=12, max_size=12).map(
    lambda found: np.array(found).reshape(DOMAIN.shape)
)


def margin(h: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    return h.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in names))


@settings(max_examples=25, deadline=None)
@given(
    counts,
    st.lists(st.sampled_from(CONDITIONS), unique=True, max_size=3),
    st.lists(st.sampled_from(SETS), unique=True, max_size=3),
    st.sampled_from(sorted(FORECASTS)),
    st.integers(0, 10**6),
)
def test_constraints_are_kept_and_intervals_hold_values(h, conditions, sets, mechanism, seed):
    h = h * sf.Constraints(DOMAIN, conditions).possible(DOMAIN.names)
    known = sf.Constraints(DOMAIN, conditions, [(s, margin(h, s)) for s in sets])
    forecast = FORECASTS[mechanism]
    noisy = measured(forecast, h, SeededWords(seed))
    found = Release.of(forecast, noisy, constraints=known)
    assert found.provenance["constraints"]["met"] == "by all answers together"
    frame, wider = found.answers(level=0.5), found.answers(level=0.99)
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert (wider["low"] <= frame["low"]).all()
    assert (frame["high"] <= wider["high"]).all()
    for group, term in enumerate(WORK.terms):
        value, bounds = found.estimates.value(group), found.estimates.bounds(term)
        truth = term.answer(margin(h, term.attributes))
        assert (bounds.low <= truth + 1e-9).all()
        assert (truth <= bounds.high + 1e-9).all()
        possible = known.possible(term.attributes)
        if getattr(term, "is_table", False):
            assert (value.reshape(possible.shape)[~possible] == 0).all()
            for s in sets:
                shared = tuple(n for n in term.attributes if n in s)
                away = tuple(i for i, n in enumerate(term.attributes) if n not in shared)
                own = value.reshape(term.shape).sum(axis=away)
                assert np.abs(own - margin(h, shared)).max() <= 1e-6
    records = found.synthetic(20)
    if len(records) and h.sum():
        codes = np.stack([records[n].to_numpy().astype(np.int64) for n in DOMAIN.names])
        assert known.are_possible(codes).all()
