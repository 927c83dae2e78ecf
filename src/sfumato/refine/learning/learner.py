# SPDX-License-Identifier: Apache-2.0
"""What is known so far: noisy tables come one by one, an estimate of every other table is kept.

The public half of the adaptive loop (``run/rounds.py``). Tables over one attribute come first and
make the product that the maximum entropy model (``entropy.py``) starts from; every further table
moves the model, and rows are drawn anew when their weights have become uneven. The same steps give
the same estimate, so a stored transcript is a release.
"""

from __future__ import annotations

import numpy as np

from sfumato.domain import Domain
from sfumato.measurement import Measurement
from sfumato.refine.draws import Draws
from sfumato.refine.fit import Names
from sfumato.refine.rows.entropy import MaximumEntropy
from sfumato.refine.simplex import project_to_simplex
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array

__all__ = ["Learner"]

LOOP_ROWS = 30_000
FINAL_ROWS = 200_000
FINAL_ROUNDS = 3
KNOWN = 0.01  # the variance that published counts are taken to have
UNEVEN = 0.5  # effective rows, as a share, below which they are drawn anew


class Learner:
    """Measured tables in, an estimate of any table out, kept on so many ``rows``."""

    def __init__(
        self,
        domain: Domain,
        records: int | None,
        constraints: Constraints | None = None,
        rows: int = LOOP_ROWS,
    ) -> None:
        self.domain = domain
        self._rows = rows
        self._public = None if constraints is None else constraints.within(domain)
        self._records: float | None = records
        if self._public is not None and self._public.total is not None:
            self._records = self._public.total
        self._single: dict[str, tuple[Array, float]] = {}  # average, variance
        self._model: MaximumEntropy | None = None
        self._draws = Draws("noise that tables would get")
        self._deviates: dict[str, Array] = {}

    @property
    def total(self) -> float:
        """The number of records: public, or the best average of the sums of the first tables."""
        if self._records is not None:
            return float(max(self._records, 1))
        if self._model is not None:
            return self._model.total
        sums = [(values.sum(), 1 / (v * values.size)) for values, v in self._single.values()]
        known = sum(s * w for s, w in sums) / sum(w for _, w in sums)
        return max(float(known), 1.0)

    @property
    def model(self) -> MaximumEntropy:
        """The model, begun when it is first needed."""
        if self._model is None:
            total = self.total
            tables = [self.single(name) for name in self.domain.names]
            self._model = MaximumEntropy(
                self.domain, tables, total, self._rows, constraints=self._public
            )
            for name, (values, variance) in self._single.items():
                self._model.observe((name,), values, variance)
            for table in () if self._public is None else self._public.published:
                if table.names:
                    self._model.observe(table.names, table.values, KNOWN)
        return self._model

    def single(self, name: str) -> Array:
        """The estimated table over one attribute, before the model."""
        for table in () if self._public is None else self._public.published:
            if name in table.names:
                return table.margin((name,))
        return project_to_simplex(self._single[name][0], self.total)

    def independent(self, names: Names) -> Array:
        """The table over some attributes as it would be if nothing hung together."""
        out = np.array(self.total)
        for name in names:
            out = np.multiply.outer(out, self.single(name) / self.total)
        return np.asarray(out)

    def learn(self, names: Names, measurement: Measurement) -> None:
        """Take one noisy table."""
        values, variance = measurement.values, measurement.noise.variance
        if len(names) == 1 and self._model is None:
            before, known = self._single.get(names[0], (np.zeros(values.size), np.inf))
            share = 1.0 if known == np.inf else known / (known + variance)
            averaged = before + share * (values - before)
            self._single[names[0]] = (averaged, variance * share)
            return
        model = self.model
        model.observe(names, values, variance)
        model.fit(1, [names])
        model.fit(1)
        if model.evenness < UNEVEN:
            model.renew()
            model.fit(1)

    def single_errors(self) -> dict[str, float]:
        """The L1 error expected of every table over one attribute, as a share of all records."""
        return {
            name: self.expected_noise(self.single(name), variance**0.5, "gaussian") / self.total
            for name, (_, variance) in self._single.items()
        }

    def expected_noise(self, estimate: Array, scale: float, law: str) -> float:
        """L1 error that noise of this scale leaves in a table like this one, after projection.

        One public draw of the noise stands for its mean: tables have many cells.
        """
        cells = np.asarray(estimate).ravel()
        known = self._deviates.get(law)
        if known is None or known.size < cells.size:
            draw = self._draws.normals if law == "gaussian" else self._draws.laplaces
            known = self._deviates[law] = draw(max(2 * cells.size, 1 << 12))
        noisy = project_to_simplex(cells + scale * known[: cells.size], self.total)
        return float(np.abs(noisy - cells).sum())

    def finish(self) -> MaximumEntropy:
        """Settle the model on many rows."""
        model = self.model
        if any(len(names) > 1 for names in model.sets):
            for _ in range(FINAL_ROUNDS):
                model.renew(FINAL_ROWS)
                model.fit(1)
        model.fit(1)
        return model
