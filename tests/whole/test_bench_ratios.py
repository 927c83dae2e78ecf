# SPDX-License-Identifier: Apache-2.0
"""What is published by default keeps beside what could be, and twins that fall behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bench import ratios
from bench.ratios import Case, ratios_of, ratios_table, summary
from sfumato.refine.shrink import HeldOut

CELLS = (4, 5, 6, 3)
SHAPES = (CELLS, (8,) * 4, (8,) * 8)


def _over(kind: str, shape: tuple[int, ...] = CELLS, epsilon: float = 1.0) -> Sequence[float]:
    """Mean L1, root mean squared and largest error published, over the better of two estimates."""
    return ratios_of(Case(kind, epsilon, shape), 3).over(*ratios.OWN)


def test_what_is_published_follows_the_better_estimate_on_two_kinds_of_records() -> None:
    for kind in ("chain", "sparse"):
        l1, rmse, largest = _over(kind)
        assert rmse <= 1.05
        assert l1 <= 1.1
        assert largest <= 1.1


def test_evidence_that_saw_its_noise_falls_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: answers judged by the answers that they came from favour what follows noise."""
    add = HeldOut.add

    def blind(self: HeldOut, noise: np.ndarray, _: np.ndarray) -> None:
        add(self, 0 * noise, self.points)

    monkeypatch.setattr(HeldOut, "add", blind)
    assert max(_over("sparse")) > 1.15


def test_dependence_that_is_measured_divides_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin, without a length, gives up what clustered records have."""
    clustered = Case("clustered", 0.15, CELLS)
    with_length = ratios_of(clustered, 6).over("nearest")
    monkeypatch.setattr(ratios, "length_of", lambda *_, **__: None)
    without = ratios_of(clustered, 6).over("nearest")
    assert max(with_length) < 1.2 < 1.3 < min(without)


def test_the_table_and_its_summary_say_how_often_the_default_is_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = ratios_of(Case("sparse", 1.0, (3, 2)), 1)
    assert set(row.errors) == {*ratios.OWN, *ratios.SIMPLE, "published"}
    ratios_table([row])
    summary([row])
    told = capsys.readouterr().out
    assert "sparse of 3 x 2, 2-way" in told
    l1, _, _ = row.over("even")
    assert f"| even | {l1:.3f} / {l1:.2f} / {int(l1 > 1.03)} |" in told


def test_a_length_is_that_of_the_values_that_are_measured() -> None:
    plan = ratios._forecast((3, 2, 4), 2, 0.1, is_public=True)
    codes = ratios.RECORDS["chain"]((3, 2, 4), 50, np.random.default_rng(0))
    blocks = range(len(plan.strategy.block_rows))
    values = [ratios._values(plan, b, codes) for b in blocks]
    answers = np.concatenate(list(plan.strategy.answers(values)))
    assert np.allclose(answers, ratios._answers(plan.workload, codes))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), *SHAPES])
@pytest.mark.parametrize("epsilon", ratios.EPSILONS)
def test_the_default_is_hardly_behind_the_better_estimate(
    shape: tuple[int, ...], epsilon: float
) -> None:
    """Three draws each: root mean squared errors are within 3%, where noise is moderate.

    At epsilon 0.1 evidence is weak: no rule could tell which estimate is the better one.
    """
    found = np.array([_over(kind, shape, epsilon) for kind in ratios.RECORDS])
    assert found[:, 1].mean() <= 1.01
    if epsilon > 0.1:
        assert found[:, 1].max() <= 1.05
        assert found[:, 0].max() <= 1.15
        assert np.median(found[:, 2]) <= 1.03


def test_every_case_has_records() -> None:
    for cases in ratios.CASES.values():
        for case in cases:
            assert case.is_table == (case.kind not in ratios.RECORDS)
