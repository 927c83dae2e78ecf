# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: strategies that the vault measures, counted once per table.

``vault.count`` counts a table and applies the strategy, ``vault.measure`` adds the noise; both
as in a release. Many runs are one call of ``measure`` on the same exact values many times over.

`planned_subjects` has every planned mechanism: all names that a person can ask for, and their
variants. Domains are small, so that a run is a few numbers; which code plans, counts and measures
does not depend on the size, except where a variant is built by its own name below.

`value_subjects` has sums and means of values, on tables of any floats: there a table is a tuple of
numbers, those of one column, and neighbours differ in one of them, which may be far outside the
range, infinite, or no number at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import inf, isnan, ldexp, nan, sqrt

import numpy as np

from sfumato.domain.attributes import Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.values import UNIT_BITS
from sfumato.measurement import LENGTH_BITS, Length, Measurement
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.division import divided, length_of, records_of
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import BIASED, choose
from sfumato.planning.views import Viewed
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.strategy.base import Block, Strategy
from sfumato.strategy.biased import approximate
from sfumato.strategy.degrees import by_degrees, symmetric_set
from sfumato.strategy.laplace.atoms import in_span, on_atoms
from sfumato.strategy.matrix import dense
from sfumato.strategy.neighbours.cell_pairs import best_on_cells
from sfumato.strategy.one_attribute.ordered import ordered
from sfumato.strategy.one_attribute.windows import windows as sliding
from sfumato.strategy.pieces import pieces
from sfumato.types import Array, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.k_norm import KNorm
from sfumato.vault.mechanisms.measure import Exact, count, measure, measure_in_turn
from sfumato.vault.tables import Table as Opened
from sfumato.vault.tables import open_table
from sfumato.workload.build import (
    explicit,
    marginals,
    means,
    predicates,
    prefixes,
    variances,
    windows,
)
from sfumato.workload.predicates import attribute
from sfumato.workload.workload import Workload
from sfumato_audit.examine import (
    Claim,
    Pair,
    Sampler,
    Score,
    Subject,
    Table,
    listed_pairs,
    pairs_at_random,
)

__all__ = [
    "VARIANCE",
    "Measuring",
    "Numbers",
    "beside_a_count",
    "divided_subject",
    "k_norm_subject",
    "length_subject",
    "measured_subject",
    "opened",
    "pairs_by_degree",
    "planned_subjects",
    "replaced_pieces",
    "square_of_half_the_range",
    "unclamped",
    "value_subject",
    "value_subjects",
]


VAULT = "sfumato.vault"
COUNTING_AND_MEASURING = frozenset(
    f"{VAULT}.{name}"
    for name in (
        "tables.open_table",
        "encode.check_columns",
        "encode.read_records",
        "mechanisms.measure.measure",
        "mechanisms.measure.add_noise",
        "mechanisms.noise.draw",
    )
)


@lru_cache(maxsize=64)
def opened(domain: Domain, records: Table) -> Opened:
    """Made-up records as a table that the vault counts; the same one for every mechanism."""
    import pandas as pd

    codes = np.array(records, dtype=np.int64).reshape(len(records), len(domain))
    return open_table(pd.DataFrame(codes, columns=list(domain.names)))


@dataclass(frozen=True, eq=False)
class Measuring:
    """A strategy with its noise, ready to measure any table of its domain."""

    domain: Domain
    blocks: Sequence[Block]
    noise: Sequence[BlockNoise]
    neighbours: Neighbours
    counted: dict[Table, Exact] = field(default_factory=dict, repr=False)

    def exact(self, table: Table) -> Exact:
        """Count a table, once, as a release does."""
        if table not in self.counted:
            records = opened(self.domain, table)
            self.counted[table] = count(records, self.domain, self.blocks, self.neighbours)
        return self.counted[table]

    def sampler(self, table: Table) -> Sampler:
        """What measures one table many times."""
        exact = self.exact(table)
        return lambda runs, source: self.measured(exact, runs, source)

    def measured(self, exact: Exact, runs: int, source: WordSource) -> Array:
        """Noisy values in steps of their grid, a row per run, and what else is public of them."""
        again = tuple(np.tile(v, runs) for v in exact.values.reveal())
        outputs = measure(Exact(Sensitive(again), exact.rows), self.blocks, self.noise, source)
        columns = [m.units.astype(np.float64).reshape(runs, -1) for m in outputs.measurements]
        rows = np.nan if outputs.rows is None else float(outputs.rows)
        return np.concatenate([*columns, np.full((runs, 1), rows)], axis=1)

    def hint(self, pair: Pair[Table]) -> Score:
        """The log-likelihood ratio that the claimed noise has."""
        centres = [self.centre(side) for side in (pair.left, pair.right)]
        laws = [(law, v.size) for law, v in zip(self.noise, centres[0], strict=True)]
        left, right = (np.concatenate(c) for c in centres)
        scale = np.concatenate([np.full(size, float(law.steps)) for law, size in laws])
        is_laplace = self.noise[0].noise == "laplace"

        def score(outputs: Array) -> Array:
            values = outputs[:, : left.size]
            if is_laplace:
                apart = np.abs(values - right) - np.abs(values - left)
                return np.asarray((apart / scale).sum(axis=1))
            return np.asarray(values @ ((left - right) / scale**2))

        return score

    def centre(self, table: Table) -> list[Array]:
        """The exact values in steps of the noise grid."""
        pairs = zip(self.exact(table).values.reveal(), self.blocks, self.noise, strict=True)
        return [
            np.ldexp(
                v.astype(np.float64),
                law.grid_bits - block.term.fraction_bits - block.term.unit_bits,
            )
            for v, block, law in pairs
        ]


def measured_subject(
    name: str,
    strategy: Strategy,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    covers: frozenset[str] = frozenset(),
    slowness: int = 1,
) -> Subject[Table]:
    """A strategy at a budget, calibrated as planning does, with the claim that is debited."""
    is_gaussian = strategy.noise == "gaussian"
    loss = budget.gaussian_mu if is_gaussian else float(budget.pure_epsilon or 0)
    assert loss  # noqa: S101 - budgets of subjects fit their noise
    noise = calibrate(strategy, loss, neighbours)
    paid = privacy_loss(strategy, noise, neighbours)
    cost = Cost.gaussian(paid) if is_gaussian else Cost.pure(paid)
    domain = strategy.workload.domain
    run = Measuring(domain, strategy.blocks, noise, neighbours)
    law = "rounded_gaussian" if is_gaussian else "discrete_laplace"
    return Subject(
        f"{name} ({neighbours})",
        Claim.of(cost),
        listed_pairs(domain.shape, neighbours),
        run.sampler,
        covers | COUNTING_AND_MEASURING | {f"{VAULT}.mechanisms.noise.{law}"},
        pairs_at_random(domain.shape, neighbours),
        run.hint,
        slowness,
    )


STEEP = Budget(epsilon=3)
BUDGETS = {"gaussian": Budget(mu=1), "laplace": Budget(epsilon=1)}
SLOW_TURNS = 100  # measured one by one: what follows depends on the first block
SLOW_INTEGERS = 4  # coefficients of so many bits are measured in Python integers
K_QUERIES = ((1, 1, 0, 2), (0, 1, 1, -1))  # moves that no box fits
PERSONS = 10  # records for which a bias is weighed against noise


def planned_subjects() -> Iterator[Subject[Table]]:
    """All named mechanisms with both kinds of neighbours, then the variants of the optimum."""
    both: tuple[Neighbours, ...] = ("add-remove", "replace-one")
    for name, strategy in _named():
        covers = frozenset({f"mechanism:{name}"})
        slow = SLOW_INTEGERS if name == "factorization" else 1
        for neighbours in both:
            yield measured_subject(
                name, strategy, BUDGETS[strategy.noise], neighbours, covers, slow
            )
    for name, strategy in _variants():
        covers = frozenset({f"mechanism:{BIASED}"}) if name == BIASED else frozenset()
        yield measured_subject(name, strategy, BUDGETS["gaussian"], covers=covers)
    for name, strategy in _laplace_matrices():
        for neighbours in both:
            yield measured_subject(name, strategy, BUDGETS["laplace"], neighbours)
    counts = MECHANISMS["laplace"].build(marginals(Domain({"cell": 4}), 1), "laplace", "rmse")
    for neighbours in both:  # a scale below a step of the grid, which is that of whole numbers
        yield measured_subject("laplace, below a step", counts, STEEP, neighbours)
    yield measured_subject(
        "factorization, replaced records", replaced_pieces(), BUDGETS["gaussian"], "replace-one"
    )
    yield divided_subject()
    yield length_subject()
    yield k_norm_subject("K-norm noise", KNorm.of(K_QUERIES, 1))


def divided_subject(is_broken: bool = False) -> Subject[Table]:
    """Marginals whose budget is divided for a noisy count of the records.

    Broken: the count is drawn with noise of its own, and nothing is taken off for it.
    """
    domain = Domain({"one": 2, "two": 2})
    plan = choose(marginals(domain, 2), Budget(mu=1), "add-remove", "rmse", "factorization")
    claimed = privacy_loss(plan.strategy, plan.noise, "add-remove")
    first_law = plan.noise[0]
    if is_broken:
        first_law = BlockNoise("gaussian", 2**16, 17)  # of scale 1/2: mu = 2 by itself
    run = Measuring(domain, plan.strategy.blocks, (first_law, *plan.noise[1:]), "add-remove")
    made: dict[int, Sequence[BlockNoise]] = {}

    def divide(first: Measurement, _: Measurement | None = None) -> Sequence[BlockNoise]:
        records = min(records_of(plan, float(first.values[0])), 20)
        if records not in made:
            made[records] = divided(plan, records, is_counted=not is_broken).noise
        return made[records]

    def sampler(table: Table) -> Sampler:
        exact = run.exact(table)

        def measured(runs: int, source: WordSource) -> Array:
            rows = []
            for _ in range(runs):
                firsts: list[Measurement] = []

                def noted(first: Measurement, _: Measurement | None) -> Sequence[BlockNoise]:
                    firsts.append(first)  # noqa: B023 - called within the round
                    return divide(first)

                seen = measure_in_turn(exact, run.blocks, run.noise, noted, random=source)
                parts = [m.values for m in (*firsts, *seen.measurements)]
                rows.append(np.concatenate(parts))
            return np.stack(rows)

        return measured

    wrong = ": the count is not paid for" if is_broken else ""
    measuring = COUNTING_AND_MEASURING - {f"{VAULT}.mechanisms.measure.measure"}
    return Subject(
        f"marginals, divided for a noisy count{wrong}",
        Claim.of(Cost.gaussian(claimed)),
        listed_pairs(domain.shape, "add-remove"),
        sampler,
        measuring | {f"{VAULT}.mechanisms.measure.measure_in_turn"},
        pairs_at_random(domain.shape, "add-remove"),
        slowness=SLOW_TURNS,
        is_broken=is_broken,
    )


LIKELY = 10  # records, a guess: of so many a length decides


@dataclass(frozen=True, eq=False)
class LengthFirst:
    """Marginals whose budget is divided for a noisy length, ready to measure any table."""

    run: Measuring
    plan: Forecast
    wanted: Length
    made: dict[int, Sequence[BlockNoise]] = field(default_factory=dict, repr=False)

    def noise(self, length: float) -> Sequence[BlockNoise]:
        """The division for a length; what divides may forget, so for the nearest whole one."""
        near = round(length)
        if near not in self.made:
            made = divided(self.plan, LIKELY, is_counted=False, length=float(near))
            self.made[near] = made.noise
        return self.made[near]

    def sampler(self, table: Table) -> Sampler:
        """What measures one table many times: a row per run, all with noise of scale 1."""
        exact = self.run.exact(table)

        def measured(runs: int, source: WordSource) -> Array:
            return np.stack([self._measured(exact, source) for _ in range(runs)])

        return measured

    def _measured(self, exact: Exact, source: WordSource) -> Array:
        lengths: list[Measurement] = []

        def divide(_: Measurement, length: Measurement | None) -> Sequence[BlockNoise]:
            assert length is not None  # noqa: S101 - asked for
            lengths.append(length)
            return self.noise(float(length.values[0]))

        run = self.run
        seen = measure_in_turn(
            exact, run.blocks, run.noise, divide, lambda _: self.wanted, random=source
        )
        return np.concatenate([m.values / m.noise.scale for m in (*lengths, *seen.measurements)])

    def hint(self, pair: Pair[Table]) -> Score:
        """The log-likelihood ratio of the length, and of values whose noise follows from it."""
        law = self.wanted.noise
        left, right = (self._centres(side) for side in (pair.left, pair.right))
        sizes = [block.term.rows for block in self.run.blocks]

        def score(outputs: Array) -> Array:
            lengths = outputs[:, 0] * law.scale
            scales = np.repeat([[n.scale for n in self.noise(x)] for x in lengths], sizes, axis=1)
            scales = np.column_stack([np.full(len(outputs), law.scale), scales])
            near, far = outputs - left / scales, outputs - right / scales
            return np.asarray((far**2 - near**2).sum(axis=1) / 2)

        return score

    def _centres(self, table: Table) -> Array:
        """The exact length, and the exact values."""
        values = self.run.exact(table).values.reveal()
        pairs = zip(self.wanted.weights, values, strict=True)
        square = sum(
            ldexp(w, -2 * LENGTH_BITS) * float((v.astype(float) ** 2).sum()) for w, v in pairs
        )
        return np.concatenate([[sqrt(square)], *values])


def length_subject(is_broken: bool = False) -> Subject[Table]:
    """Marginals whose budget is divided for a noisy length of their pieces, and a guess.

    Broken: the length has a thirtieth of the noise that is paid for.
    """
    domain = Domain({"one": 3, "two": 3})
    plan = choose(marginals(domain, 2), Budget(mu=1), "add-remove", "rmse", "factorization")
    claimed = privacy_loss(plan.strategy, plan.noise, "add-remove")
    wanted = length_of(plan, LIKELY, is_counted=False)
    assert wanted is not None  # noqa: S101 - of so few records it decides
    if is_broken:
        wanted = replace(wanted, noise=replace(wanted.noise, units=wanted.noise.units // 30))
    run = Measuring(domain, plan.strategy.blocks, plan.noise, "add-remove")
    first = LengthFirst(run, plan, wanted)
    wrong = ": a thirtieth of its noise" if is_broken else ""
    measuring = COUNTING_AND_MEASURING - {f"{VAULT}.mechanisms.measure.measure"}
    return Subject(
        f"marginals, divided for a noisy length{wrong}",
        Claim.of(Cost.gaussian(claimed)),
        listed_pairs(domain.shape, "add-remove"),
        first.sampler,
        measuring
        | {
            f"{VAULT}.mechanisms.measure.measure_in_turn",
            f"{VAULT}.mechanisms.measure.measured_length",
        },
        pairs_at_random(domain.shape, "add-remove"),
        first.hint,
        slowness=SLOW_TURNS * 3 // 2,  # the likelihood is known: fewer runs tell as much
        is_broken=is_broken,
    )


def replaced_pieces() -> Strategy:
    """Prefixes beside a table, in pieces for replaced records; the total is next to exact."""
    plane = Domain({"age": 3, "sex": 2}, records="all-inside")
    strategy = best_on_cells(prefixes(plane, "age") | marginals(plane, 2), drops=False)
    assert strategy is not None  # noqa: S101 - products on few cells
    return strategy


def k_norm_subject(name: str, mechanism: KNorm, is_broken: bool = False) -> Subject[Table]:
    """Hardt and Talwar's noise on two queries of four cells; the claim is that of `KNorm.of`."""

    def sampler(table: Table) -> Sampler:
        counts = np.bincount([cell for (cell,) in table], minlength=4)
        exact = mechanism.measured @ counts

        def run(runs: int, source: WordSource) -> Array:
            many = (exact + mechanism.noise(runs - 1, source)) @ mechanism.read_off.T
            return np.concatenate([mechanism.measure(counts, source)[None], many])

        return run

    pairs = tuple(Pair(f"no record, or one in cell {cell}", (), ((cell,),)) for cell in range(4))
    claim = Claim.of(KNorm.of(K_QUERIES, 1).cost)
    covers = frozenset({"sfumato.vault.mechanisms.k_norm.KNorm.measure"})
    return Subject(name, claim, pairs, sampler, covers, is_broken=is_broken)


def _named() -> Iterator[tuple[str, Strategy]]:
    people = Domain({"age": 4, "sex": 2})
    totals = prefixes(people, "age", by=["sex"]) | marginals(people, 1)
    bits = marginals(Domain({"one": 2, "two": 2, "three": 2}), 2)
    for name, (build, noise) in MECHANISMS.items():
        work = bits if name.endswith("-fourier") else totals
        yield name, build(work, noise, "rmse")


def _variants() -> Iterator[tuple[str, Strategy]]:
    line = Domain({"age": 6})
    plane = Domain({"age": 3, "sex": 2})
    total = prefixes(line, "age")
    yield "factorization, marginals", _factorization(marginals(plane, 2) | marginals(plane, 1))
    yield "factorization, implicit root", ordered(total)
    yield "factorization, windows", sliding(windows(line, "age", 2))
    cut = pieces(prefixes(plane, "age") | marginals(plane, 2))
    assert cut is not None  # noqa: S101 - products can always be cut in pieces
    yield "factorization, pieces", cut
    coefficients = [[1, 2, 0, -1, 0, 3], [0, 1, 1, 1, 0, 0]]
    yield "factorization, matrix", dense(explicit(line, ["age"], coefficients))
    age, sex = attribute(plane, "age"), attribute(plane, "sex")
    conditions = predicates(plane, [age >= 1, (age >= 2) & (sex == 1)])
    yield "factorization, conditions", _factorization(conditions)
    yield "factorization, as it was asked", _viewed(conditions | marginals(plane, 1) | conditions)
    yield BIASED, approximate(total, 1.0, PERSONS, "rmse")
    bits = Domain({"one": 2, "two": 2, "three": 2})
    yield "conjunctions by degrees", pairs_by_degree(bits)
    yield "conjunctions by degrees, biased", pairs_by_degree(bits, PERSONS)


def _laplace_matrices() -> Iterator[tuple[str, Strategy]]:
    """Conditions as one matrix with Laplace noise: sums of their atoms, mixtures of them."""
    plane = Domain({"age": 3, "sex": 2})
    age, sex = attribute(plane, "age"), attribute(plane, "sex")
    conditions = predicates(plane, [age >= 1, (age >= 2) | (sex == 1), sex == 0])
    yield "laplace-optimum, atoms", on_atoms(conditions)
    yield "laplace-optimum, matrix", in_span(conditions)


def pairs_by_degree(domain: Domain, records: int | None = None) -> Strategy:
    """All conjunctions of two of some yes/no attributes, measured degree by degree."""
    literals = [attribute(domain, n) == i % 2 for i, n in enumerate(domain.names)]
    work = predicates(domain, [a & b for a, b in combinations(literals, 2)])
    family = symmetric_set(work)
    assert family is not None  # noqa: S101 - they are all conjunctions of two
    return by_degrees(work, family, records)


def _viewed(work: Workload) -> Strategy:
    """Planned for the normal form, and seen through groups in another order, some of them twice."""
    return Viewed.of(_factorization(work.normal.workload), work)


def _factorization(work: Workload) -> Strategy:
    return MECHANISMS["factorization"].build(work, "gaussian", "rmse")


Numbers = tuple[float, ...]

COLUMN = Domain([Numeric("x", (0, 100), outside="clamp", nulls="missing")])
MANY = 500
VARIANCE = variances(COLUMN, "x")
TABLE_BUDGETS = {"gaussian-table": Budget(mu=1), "laplace-table": Budget(epsilon=1)}


@dataclass(frozen=True, eq=False)
class _MeasuringValues:
    """As `Measuring`, of a column of numbers; ``weigh`` in place of the weights of the vault."""

    run: Measuring
    weigh: Callable[[float], tuple[int, ...]] | None
    counted: dict[str, Exact] = field(default_factory=dict, repr=False)

    def sampler(self, table: Numbers) -> Sampler:
        exact = self.exact(table)
        return lambda runs, source: self.run.measured(exact, runs, source)

    def exact(self, table: Numbers) -> Exact:
        key = repr(table)  # nan is not equal to itself
        if key not in self.counted:
            self.counted[key] = self._of(table)
        return self.counted[key]

    def _of(self, table: Numbers) -> Exact:
        import pandas as pd

        run = self.run
        if self.weigh is None:
            column = pd.DataFrame({"x": np.array(table, dtype=np.float64)})
            return count(open_table(column), run.domain, run.blocks, run.neighbours)
        total = np.zeros(len(self.weigh(0.0)), dtype=object)
        for number in table:
            if isnan(number):
                continue
            total = total + np.array(self.weigh(number), dtype=object)
        return Exact(Sensitive(tuple(np.asarray(b.term.apply(total)) for b in run.blocks)), None)

    def hint(self, pair: Pair[Numbers]) -> Callable[[Array], Array]:
        """The log-likelihood ratio of the two sides, from their exact values."""
        sides = []
        for table in (pair.left, pair.right):
            parts = zip(
                self.exact(table).values.reveal(), self.run.blocks, self.run.noise, strict=True
            )
            sides.append(
                np.concatenate(
                    [
                        np.ldexp(
                            v.astype(np.float64),
                            law.grid_bits - b.term.fraction_bits - b.term.unit_bits,
                        )
                        for v, b, law in parts
                    ]
                )
            )
        left, right = sides
        (law, *_) = self.run.noise

        def score(outputs: Array) -> Array:
            values = outputs[:, : left.size]
            if law.noise == "laplace":
                apart = np.abs(values - right) - np.abs(values - left)
                return np.asarray((apart / float(law.steps)).sum(axis=1))
            return np.asarray(values @ ((left - right) / float(law.steps) ** 2))

        return score


def value_subject(
    name: str,
    mechanism: str,
    neighbours: Neighbours,
    weigh: Callable[[float], tuple[int, ...]] | None = None,
    work: Workload | None = None,
) -> Subject[Numbers]:
    """The mean of a column with one table of noise; known to be wrong with weights of its own.

    ``work`` in its place: the variance.
    """
    build, noise_kind = MECHANISMS[mechanism]
    strategy = build(means(COLUMN, "x") if work is None else work, noise_kind, "rmse")
    budget = TABLE_BUDGETS[mechanism]
    is_gaussian = strategy.noise == "gaussian"
    loss = budget.gaussian_mu if is_gaussian else float(budget.pure_epsilon or 0)
    assert loss  # noqa: S101 - budgets of subjects fit their noise
    noise = calibrate(strategy, loss, neighbours)
    paid = privacy_loss(strategy, noise, neighbours)
    run = _MeasuringValues(
        Measuring(strategy.workload.domain, strategy.blocks, noise, neighbours), weigh
    )
    law = "rounded_gaussian" if is_gaussian else "discrete_laplace"
    return Subject(
        f"{name}, {mechanism} ({neighbours})",
        Claim.of(Cost.gaussian(paid) if is_gaussian else Cost.pure(paid)),
        _pairs(neighbours),
        run.sampler,
        frozenset() if weigh else COUNTING_AND_MEASURING | {f"{VAULT}.mechanisms.noise.{law}"},
        hint=run.hint,
        is_broken=weigh is not None,
    )


def value_subjects() -> Iterator[Subject[Numbers]]:
    """Both laws, both kinds of neighbours."""
    for mechanism in TABLE_BUDGETS:
        yield value_subject("values", mechanism, "add-remove")
        yield value_subject("values", mechanism, "replace-one")
        yield value_subject("second moments", mechanism, "add-remove", work=VARIANCE)
        yield value_subject("second moments", mechanism, "replace-one", work=VARIANCE)


def unclamped(number: float) -> tuple[int, ...]:
    """Weights of the value as it stands, which leave the simplex beyond the range."""
    share = round(min(max(number, -1e6), 1e6) / 100 * 2**UNIT_BITS)
    return 2**UNIT_BITS - share, share, 0


def square_of_half_the_range(number: float) -> tuple[int, ...]:
    """Weights of a square that was scaled by half of the range: four times what it should be."""
    share = min(max(number, 0.0), 100.0) / 100
    square = round(4 * share**2 * 2**UNIT_BITS)
    return 0, 0, 2**UNIT_BITS - square, square, 0


def beside_a_count(number: float) -> tuple[int, ...]:
    """A sum and a count measured as if they were one table: together they move by up to 2."""
    share = round(min(max(number, 0.0), 100.0) / 100 * 2**UNIT_BITS)
    return 2**UNIT_BITS, share, 0


def _pairs(neighbours: Neighbours) -> tuple[Pair[Numbers], ...]:
    crowd = (0.0,) * MANY
    if neighbours == "replace-one":
        return (
            Pair("0 becomes 100", (0.0,), (100.0,)),
            Pair("0 becomes 10,000", (0.0,), (10_000.0,)),
            Pair("a denormal becomes infinite, crowded", (*crowd, 5e-324), (*crowd, inf)),
            Pair("50 becomes no number", (50.0,), (nan,)),
        )
    return (
        Pair("nothing, or 100", (), (100.0,)),
        Pair("nothing, or 1e308", (), (1e308,)),
        Pair("crowded, 250 or none", crowd, (*crowd, 250.0)),
        Pair("crowded, one more at the half", crowd, (*crowd, 50.0)),
        Pair("nothing, or no number", (), (nan,)),
    )
