# SPDX-License-Identifier: Apache-2.0
"""Multiplicative weights over all cells: the estimate that MWEM improves query by query.

    h(x) <- h(x) exp(q(x) (y - q(h)) / (2 n)),  scaled to sum n

for a query q with coefficients in [-1, 1] and its noisy answer y (Hardt, Ligett, McSherry 2012, "A
simple and practical algorithm for differentially private data release"; Hedge: Freund, Schapire
1997). As the authors advise, all queries measured so far are gone through again and again. The
domain is explicit: one number per cell is held. Public arithmetic only.
"""

from __future__ import annotations

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.refine.fit import Names
from sfumato.workload.constraints import Constraints
from sfumato.workload.gram import marginal, spread
from sfumato.workload.queries import Array
from sfumato.workload.term import Term
from sfumato.workload.workload import Workload

__all__ = ["MOST_CELLS", "Hedge"]

MOST_CELLS = 2**21
PASSES = 10
MOST_PASSES = 50
SETTLED = 1e-2  # of the error left in the measured queries, per pass


class Hedge:
    """A histogram of ``total`` records, uniform at first, that learns measured queries.

    With constraints it is uniform over what is possible; published tables are met at the end
    (``kept.py``).

    >>> import sfumato as sf
    >>> domain = sf.Domain({"sex": 2})
    >>> cells = sf.marginals(domain, 1).terms[0]
    >>> hedge = Hedge(domain, 10.0)
    >>> hedge.learn(cells, 0, 8.0)
    >>> hedge.histogram.round(1).tolist()
    [8.0, 2.0]
    """

    def __init__(
        self, domain: Domain, total: float, constraints: Constraints | None = None
    ) -> None:
        if domain.size > MOST_CELLS:
            raise TooLarge(
                f"multiplicative weights hold all {domain.size:,} cells of the domain, at most "
                f'{MOST_CELLS:,} are allowed; use method="tables", or fewer attributes'
            )
        self.domain, self.total = domain, max(float(total), 1.0)
        self.histogram = np.full(domain.shape, self.total / domain.size)
        if constraints is not None:  # steps multiply, so what is impossible stays 0
            possible = constraints.possible(domain.names)
            self.histogram = possible * (self.total / float(possible.sum()))
        self._known: dict[tuple[str, int], tuple[Term, Array, float, int]] = {}

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))

    def answers(self, workload: Workload) -> Array:
        """The estimated answers to all queries, group after group."""
        return np.concatenate([t.answer(self.table(t.attributes)) for t in workload.terms])

    def learn(self, term: Term, query: int, value: float) -> None:
        """Take a noisy answer, and go through all that is known; equal queries are averaged."""
        one = np.zeros(term.rows)
        one[query] = 1.0
        coefficients = np.asarray(term.adjoint(one), dtype=np.float64).reshape(term.shape)
        _, _, before, times = self._known.get((term.name, query), (term, coefficients, 0.0, 0))
        averaged = (before * times + value) / (times + 1)
        self._known[term.name, query] = (term, coefficients, averaged, times + 1)
        left = self._pass()
        for i in range(1, MOST_PASSES):
            now = self._pass()
            if i >= PASSES and now > (1 - SETTLED) * left:
                break
            left = now

    def _pass(self) -> float:
        """One step per known query; the sum of their errors before it, as shares of all records."""
        error = 0.0
        for term, coefficients, value, _ in self._known.values():
            greatest = float(np.abs(coefficients).max()) or 1.0
            found = float((coefficients * self.table(term.attributes)).sum())
            lack = (value - found) / (self.total * greatest)
            error += abs(lack)
            # Noise may ask for more records than there are: a step is never longer than 1/2.
            step = np.exp(coefficients / greatest * (min(max(lack, -1.0), 1.0) / 2))
            self.histogram = self.histogram * spread(step, self.domain, term.attributes)
            self.histogram *= self.total / self.histogram.sum()
        return error
