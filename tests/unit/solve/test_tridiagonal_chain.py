# SPDX-License-Identifier: Apache-2.0
"""Sweeps over chains against dense inverses, and against exact fractions where those fail."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from sfumato.solve import kernels
from sfumato.solve.kernels import BLOCK, TINY
from sfumato.solve.tridiagonal import (
    RELATIVE,
    Chain,
    PartialFractions,
    Root,
    applied,
    covariances,
    diagonals,
    potentials,
)
from sfumato.strategy.one_attribute.ordered import on_grid

SHIFTS = np.geomspace(1e-4, 30.0, 11)


def some_chain(n: int, seed: int, is_grounded: bool) -> tuple[Chain, np.ndarray]:
    rng = np.random.default_rng(seed)
    ground = np.zeros(n)
    ground[-1] = 0.7
    ground[0] += 0.3 * is_grounded
    return Chain(rng.uniform(0.1, 2, n - 1), ground), rng.uniform(0.1, 3, n)


def exact_root(
    chain: Chain, mass: np.ndarray, root: Root, scale: np.ndarray, counts: np.ndarray
) -> list[Fraction]:
    """The same map by Gaussian elimination in fractions."""

    def exact(numbers: np.ndarray) -> list[Fraction]:
        return [Fraction(float(x)) for x in numbers]

    n = chain.nodes
    a = [[Fraction(0)] * n for _ in range(n)]
    for i, k in enumerate(exact(chain.ground)):
        a[i][i] += k
    for i, b in enumerate(exact(chain.links)):
        a[i][i] += b
        a[i + 1][i + 1] += b
        a[i][i + 1] -= b
        a[i + 1][i] -= b
    out = [Fraction(0)] * n
    v, h = exact(mass), [c + Fraction(TINY) for c in exact(counts)]
    for s, c in zip(exact(root.shifts), exact(root.weights), strict=True):
        rows = [[*a[i][:i], a[i][i] + s * v[i], *a[i][i + 1 :], h[i]] for i in range(n)]
        for i in range(n):
            for j in range(n):
                if j != i and rows[j][i]:
                    f = rows[j][i] / rows[i][i]
                    rows[j] = [x - f * y for x, y in zip(rows[j], rows[i], strict=True)]
        out = [o + c * rows[i][n] / rows[i][i] for i, o in enumerate(out)]
    return [o * d for o, d in zip(out, exact(scale), strict=True)]


@pytest.mark.parametrize("is_grounded", [False, True])
@pytest.mark.parametrize("n", [1, 2, 9, BLOCK, BLOCK + 3])
def test_sweeps_equal_dense_inverses(n: int, is_grounded: bool) -> None:
    chain, mass = some_chain(n, n, is_grounded)
    rng = np.random.default_rng(n)
    shifts = SHIFTS if n < BLOCK else SHIFTS[::5]
    first, second, weights = rng.normal(size=(3, len(shifts)))
    sources = rng.normal(size=n)
    matrix, u = np.zeros((n, n)), np.zeros(n)
    for s, a, b, w in zip(shifts, first, second, weights, strict=True):
        g = np.linalg.inv(chain.dense() + s * np.diag(mass))
        matrix += a * g + b * (g * mass) @ g
        u += w * g @ sources
    terms = PartialFractions(shifts, first, second)
    plus, minus = diagonals(chain, mass, terms)
    assert min(plus.min(), minus.min()) >= 0
    size = np.abs(matrix).max()
    np.testing.assert_allclose(plus - minus, np.diag(matrix), atol=1e-10 * size)
    found, current = potentials(chain, mass, shifts, weights, sources)
    np.testing.assert_allclose(found, u, atol=1e-10 * np.abs(u).max())
    np.testing.assert_allclose(current, chain.links * (u[:-1] - u[1:]), atol=1e-9 * np.abs(u).max())
    pairs = np.triu_indices(n, 1)
    np.testing.assert_allclose(
        covariances(chain, mass, terms, *pairs), matrix[pairs], atol=1e-10 * size
    )


@pytest.mark.parametrize("is_grounded", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 13])
def test_double_doubles_are_exact_to_far_below_their_bound(n: int, is_grounded: bool) -> None:
    chain, mass = some_chain(n, 100 + n, is_grounded)
    root = Root(np.geomspace(1e-9, 1e6, 9), np.geomspace(1e-7, 1e3, 9))
    counts = np.random.default_rng(n).integers(0, 3, n) * 2.0**40
    high, low = applied(chain, mass, root, np.sqrt(mass), counts)
    for h, t, exact in zip(
        high, low, exact_root(chain, mass, root, np.sqrt(mass), counts), strict=True
    ):
        error = abs(Fraction(float(h)) + Fraction(float(t)) - exact)
        assert error <= exact * Fraction(RELATIVE) * (n + 8)


def test_one_record_far_away_keeps_its_relative_accuracy() -> None:
    """What single floats would lose: 1e-40 of a count, from 40 steep cells away."""
    n = 41
    chain = Chain(np.ones(n - 1), np.r_[np.zeros(n - 1), 1.0])
    root = Root(np.array([8.0]), np.array([1.0]))
    counts = np.zeros(n)
    counts[0] = 2.0**44
    high, low = applied(chain, np.ones(n), root, np.ones(n), counts)
    exact = exact_root(chain, np.ones(n), root, np.ones(n), counts)
    assert exact[-1] < Fraction(1, 10**20)
    error = abs(Fraction(float(high[-1])) + Fraction(float(low[-1])) - exact[-1])
    assert error <= exact[-1] * Fraction(RELATIVE) * (n + 8)


def test_blocks_do_not_change_what_is_computed() -> None:
    """Two chains without a link of weight between them: the second is computed on its own."""
    n = 2 * BLOCK + 5
    rng = np.random.default_rng(9)
    mass, counts = rng.uniform(0.5, 2, n), rng.integers(0, 9, n).astype(float)
    root = Root(np.geomspace(0.5, 8, 3), np.ones(3))
    chain = Chain(np.ones(n - 1), np.r_[np.zeros(n - 1), 1.0])
    high, low = applied(chain, mass, root, np.ones(n), counts)
    u, _ = potentials(chain, mass, root.shifts, root.weights, counts)
    np.testing.assert_allclose(high + low, u, rtol=1e-11)


@pytest.mark.parametrize("scale", [1.0, 2.0**20, 2.0**43])
def test_rounding_to_the_grid_is_to_the_nearest_step(scale: float) -> None:
    rng = np.random.default_rng(4)
    high = scale * rng.uniform(0, 1, 200)
    low = np.spacing(high) * rng.uniform(-0.5, 0.5, 200)
    for h, t, found in zip(high, low, on_grid(high, low), strict=True):
        exact = (Fraction(float(h)) + Fraction(float(t))) * 2**30
        assert isinstance(found, int)
        assert abs(found - exact) <= Fraction(1, 2) + Fraction(1, 2**14)


FUSED = r"v?fn?m(add|sub)[0-9ps]|\bfml[as]\b"


def test_double_doubles_are_compiled_as_written() -> None:
    """No fast mathematics in any kernel of the vault, and no contraction to one rounding."""
    from numba import njit

    n = 40
    given = [np.ones(n - 1), *(np.ones(n) for _ in range(2)), np.arange(1.0, 9.0), np.ones(8)]
    options = {k: v for k, v in kernels.sweep.targetoptions.items() if k != "nopython"}
    kernel = njit(**options)(kernels.sweep.py_func)
    kernel(*given, np.ones(n), np.ones(n), np.zeros(n), np.zeros(n))
    for found in (kernels.sweep, kernels.forward):
        assert not found.targetoptions.get("fastmath", False)
    (code,) = kernel.inspect_asm().values()
    assert not re.search(FUSED, code)
    # the twin: fast mathematics does contract them, where the processor can
    fast = njit(fastmath=True, error_model="numpy")(kernels.two_product.py_func)
    fast(1.5, 2.5)
    (twin,) = fast.inspect_asm().values()
    plain = njit(error_model="numpy")(kernels.two_product.py_func)
    plain(1.5, 2.5)
    (written,) = plain.inspect_asm().values()
    assert not re.search(FUSED, written)
    assert twin != written
