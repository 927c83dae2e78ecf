# SPDX-License-Identifier: Apache-2.0
"""Diameters of columns of whole numbers: against all pairs, and bounds beyond the limit of work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from sfumato.solve import farthest as module
from sfumato.solve.farthest import PairDistances, farthest_together

KINDS = {
    "0 and 1": lambda r, shape: r.integers(0, 2, shape),
    "few levels": lambda r, shape: r.integers(-1, 3, shape),
    "fractions": lambda r, shape: r.integers(-(2**20), 2**20, shape),
    "long and nearly equal": lambda r, shape: 2**50 + r.integers(0, 3, shape),
    "repeated": lambda r, shape: np.repeat(r.integers(0, 9, (shape[0], 5)), shape[1] // 5 + 1, 1),
    "running totals": lambda r, shape: np.tri(shape[0], shape[1], dtype=np.int64),  # noqa: ARG005
}


def all_pairs(entries: np.ndarray, p: int) -> np.ndarray:
    away = np.abs(entries[:, :, None].astype(object) - entries[:, None, :])
    return (away**p).sum(axis=0).astype(np.float64)


def limits(**changes: float) -> object:
    return replace(module.LIMITS, **changes)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_diameter_is_that_of_all_pairs(
    kind: str, p: int, is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMITS", limits(pair_columns=16, pair_numbers=100))
    entries = KINDS[kind](np.random.default_rng(3), (11, 43))
    pairs = PairDistances.of(csr_matrix(entries) if is_sparse else entries, p)
    true = float(all_pairs(entries, p).max())
    assert pairs.is_exact
    assert true <= pairs.farthest() <= true * (1 + 1e-12)


def test_columns_that_differ_stay_apart_though_their_hashes_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MIX", np.uint64(0))  # every column has hash 0
    entries = np.random.default_rng(0).integers(0, 3, (6, 20))
    assert PairDistances.of(entries, 1).farthest() >= all_pairs(entries, 1).max() / 2
    labels, first = module._distinct(entries)
    assert (entries[:, first][:, labels] == entries).all()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("kind", ["0 and 1", "few levels", "fractions"])
def test_beyond_the_limit_the_bound_holds_and_there_is_no_jump(
    kind: str, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = KINDS[kind](np.random.default_rng(5), (60, 40))
    true = float(all_pairs(entries, p).max())
    whole = 60 * 40**2 / 2 * (4.0 if p == 1 else 1.0)
    bounds = []
    for share in np.linspace(0, 1, 31):
        monkeypatch.setattr(module, "LIMITS", limits(pair_multiplications_exact=whole * share))
        bounds.append(PairDistances.of(entries, p).farthest())
    ratios = np.array(bounds) / true
    assert (ratios >= 1).all()
    assert ratios[-1] <= 1 + 1e-12
    assert (np.diff(ratios) <= 0.02).all()  # more work is never much worse,
    assert (-np.diff(ratios) <= 0.15).all()  # and no step of work makes a jump
    assert ratios[0] <= 4.5


def test_one_move_for_all_blocks_against_all_pairs_of_cells() -> None:
    r = np.random.default_rng(1)
    wide, narrow = r.integers(-5, 6, (7, 30)), r.integers(0, 2, (4, 3))
    at = np.arange(30) % 3
    for p in (1, 2):
        blocks = [PairDistances.of(wide, p), PairDistances.of(narrow, p)]
        labels = [blocks[0].labels, blocks[1].labels[at]]
        together = farthest_together(blocks, [0.5, 3.0], labels)
        each = 0.5 * all_pairs(wide, p) + 3.0 * all_pairs(narrow[:, at], p)
        assert each.max() <= together <= each.max() * (1 + 1e-12)
        # A twin: the sum of the diameters takes a different move for each block.
        apart = 0.5 * blocks[0].farthest() + 3.0 * blocks[1].farthest()
        assert together < apart


def test_a_diameter_that_leaves_columns_out_is_caught() -> None:
    entries = np.random.default_rng(2).integers(-9, 9, (5, 50))
    metric = cdist(entries.T, entries.T, "cityblock")
    some = PairDistances.of(entries[:, :10], 1).farthest()
    assert some < metric.max() <= PairDistances.of(entries, 1).farthest()
