# SPDX-License-Identifier: Apache-2.0
"""One figure for every mechanism page, computed by the library: ``python docs/make_images.py``.

Forecasts are exact; where something is drawn, the noise is new each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import log, sqrt

import altair as alt
import numpy as np

import sfumato as sf

Curve = tuple[str, float, float]
BUDGET = sf.Budget(epsilon=1, delta=1e-6)
# Grey is what one starts from, the accent what the page is about; warm colours are in between.
FIRST, BETWEEN, LAST = "#8a8f94", ("#d1603d", "#e3a23b", "#6b4fa0"), "#2b6f8f"
FAINT = "#ececec"


def lines(
    curves: Iterable[Curve], across: str, up: str, title: str, *, is_log: bool = True
) -> alt.LayerChart:
    """One line per series, its name at the end; the last series is the one the page is about."""
    values = [{"s": s, "x": float(x), "y": float(y)} for s, x, y in curves]
    names = list(dict.fromkeys(v["s"] for v in values))
    colours = [FIRST, *BETWEEN[: len(names) - 2], LAST]
    kind = "log" if is_log else "linear"
    # 10k for thousands, but no "m" for thousandths.
    numbers = "~s" if min(v["x"] for v in values) >= 1 else "~g"
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.X(
            "x:Q",
            title=across,
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(format=numbers, gridColor=FAINT),
        ),
        alt.Y(
            "y:Q",
            title=up,
            scale=alt.Scale(type=kind),
            axis=alt.Axis(tickCount=6, format="~g", gridColor=FAINT),
        ),
        alt.Color(
            "s:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=colours),
            legend=alt.Legend(labelLimit=300, symbolStrokeWidth=3, symbolType="stroke"),
        ),
    )
    drawn = base.mark_line(strokeWidth=2) + base.mark_circle(size=26, opacity=1)
    return drawn.properties(width=420, height=230, title=alt.Title(title, anchor="start"))


def planned(work: sf.Workload, mechanism: str, budget: sf.Budget = BUDGET) -> float | None:
    """The forecast of one mechanism, or None where it does not fit."""
    try:
        return sf.plan(work, budget, mechanism=mechanism, seconds=20).rmse
    except sf.PlanError:
        return None


def swept(
    works: Sequence[tuple[float, sf.Workload]],
    names: dict[str, str],
    budget: sf.Budget = BUDGET,
) -> list[Curve]:
    """The forecasts of mechanisms (by name: what to call them) on workloads of growing size."""
    found = []
    for name, shown in names.items():
        for x, work in works:
            error = planned(work, name, budget)
            if error is not None:
                found.append((shown, x, error))
    return found


def laplace() -> alt.LayerChart:
    works = [(k, sf.prefixes(sf.Domain({"age": k}), "age")) for k in (1, 2, 4, 8, 16, 32, 64, 128)]
    names = {"gaussian": "Gaussian noise, delta = 1e-6", "laplace": "Laplace noise"}
    return lines(
        swept(works, names),
        "running totals asked, k",
        "forecast rmse, in counts",
        "Noise on k overlapping answers at epsilon = 1",
    )


def gaussian() -> alt.LayerChart:
    curves: list[Curve] = []
    for epsilon in np.geomspace(0.05, 10, 15):
        mu = sf.Budget(epsilon=float(epsilon), delta=1e-6).gaussian_mu
        if mu is not None:
            classical = sqrt(2 * log(1.25 / 1e-6)) / epsilon
            curves += [("textbook: sqrt(2 ln(1.25/delta)) / epsilon", epsilon, classical)]
            curves += [("the exact curve, used here", epsilon, 1 / mu)]
    curves.sort(key=lambda c: c[0].startswith("the"))
    return lines(curves, "epsilon, delta = 1e-6", "sigma at sensitivity 1", "Gaussian noise needed")


def contingency_table() -> alt.LayerChart:
    rng = np.array(
        [[(i * 7919 + j * 104729 + i * j * 31) % 97 < 48 for j in range(64)] for i in range(512)]
    )
    domain = sf.Domain({"cell": 64})
    works = [(k, sf.explicit(domain, ["cell"], rng[:k])) for k in (1, 4, 16, 64, 256, 512)]
    names = {"laplace": "noise on every answer", "laplace-table": "noise on the table of 64 cells"}
    return lines(
        swept(works, names, sf.Budget(epsilon=1)),
        "queries, each a sum of about 32 cells",
        "forecast rmse, in counts",
        "Laplace noise at epsilon = 1",
    )


def _ranges(sizes: Sequence[int]) -> list[tuple[float, sf.Workload]]:
    return [(n, sf.ranges(sf.Domain({"age": n}), "age")) for n in sizes]


def binary_tree() -> alt.LayerChart:
    names = {
        "laplace-table": "single cells, summed",
        "laplace-tree": "tree, equal levels",
        "laplace-weighted-tree": "tree, best weights",
    }
    return lines(
        swept(_ranges((8, 32, 128, 512, 2048, 8192)), names, sf.Budget(epsilon=1)),
        "cells",
        "forecast rmse, in counts",
        "All ranges, Laplace noise at epsilon = 1",
    )


def wavelet() -> alt.LayerChart:
    names = {
        "gaussian-table": "single cells, summed",
        "gaussian-tree": "binary tree",
        "gaussian-wavelet": "wavelet, best weights",
        "factorization": "factorization: the optimum",
    }
    return lines(
        swept(_ranges((8, 32, 128, 512, 2048)), names, sf.Budget(mu=1)),
        "cells",
        "forecast rmse, in counts",
        "All ranges, Gaussian noise at mu = 1",
    )


def fourier() -> alt.LayerChart:
    works = [
        (d, sf.marginals(sf.Domain({f"q{i}": 2 for i in range(d)}), 3)) for d in (4, 6, 8, 11, 14)
    ]
    names = {
        "gaussian-table": "table of all 2^d cells",
        "gaussian": "noise on every answer",
        "gaussian-fourier": "characters",
    }
    return lines(
        swept(works, names, sf.Budget(mu=1)),
        "yes/no attributes d",
        "forecast rmse, in counts",
        "All 3-way marginals, Gaussian noise at mu = 1",
    )


def conjunction_sets() -> alt.HConcatChart:
    """All 2^d monotone conjunctions: against d for some n, and against alpha for some n."""
    sizes, records = range(4, 31, 2), (10_000, 1_000, 100)
    rows = sf.study.conjunction_errors(list(sizes), list(records))
    curves = [("without bias", r.attributes, r.exact) for r in rows if r.records == records[0]]
    curves += [
        (f"n = {n:,}", r.attributes, r.error) for n in records for r in rows if r.records == n
    ]
    left = lines(
        curves,
        "yes/no attributes d",
        "least worst rmse, in counts",
        "All 2^d monotone conjunctions, mu = 1",
    )
    alphas = np.geomspace(0.002, 0.3, 14).tolist()
    some = sf.study.conjunction_errors(20, list(records), alphas)
    biased = [(f"n = {n:,}", r.alpha, r.error / n) for n in records for r in some if r.records == n]
    right = lines(
        biased,
        "bias alpha per record",
        "worst rmse, as a share of n",
        "d = 20: bias against noise",
    )
    return alt.hconcat(left, right).resolve_scale(color="independent")


def laplace_optimum() -> alt.LayerChart:
    works = [(n, sf.prefixes(sf.Domain({"age": n}), "age")) for n in (8, 32, 128, 512)]
    names = {
        "laplace": "noise on every answer",
        "laplace-tree": "tree, equal levels",
        "laplace-weighted-tree": "tree, best weights",
        "laplace-optimum": "best strategy found",
    }
    return lines(
        swept(works, names, sf.Budget(epsilon=1)),
        "cells",
        "forecast rmse, in counts",
        "Running totals, Laplace noise at epsilon = 1",
    )


def factorization() -> alt.LayerChart:
    sizes = (8, 64, 512, 4096, 32768)
    works = [(n, sf.prefixes(sf.Domain({"age": n}), "age")) for n in sizes]
    budget = sf.Budget(mu=1)
    curves = swept(
        works, {"gaussian": "noise on every answer", "gaussian-tree": "binary tree"}, budget
    )
    best = [(n, sf.plan(w, budget, mechanism="factorization")) for n, w in works]
    curves += [("certified lower bound", n, p.rmse / (p.certificate or 1)) for n, p in best]
    curves += [("factorization", n, p.rmse) for n, p in best]
    return lines(
        curves, "cells", "forecast rmse, in counts", "Running totals, Gaussian noise at mu = 1"
    )


def projection() -> alt.LayerChart:
    work = sf.conjunctions(sf.Domain({f"q{i}": 2 for i in range(10)}), 3)
    forecast = sf.forecast_projection(work, BUDGET, 1000, "replace-one")
    curves: list[Curve] = []
    sizes = np.geomspace(30, 100_000, 12)
    curves += [("Gaussian noise alone", n, forecast.noise / n) for n in sizes]
    curves += [("projected: bound for any data", n, forecast.bound_at(n) / n) for n in sizes]

    made_up = sf.study.MadeUp.of(work)
    for n in (30, 300, 3000, 30_000):
        found = sf.study.measure_projection(forecast, made_up, n, 3)
        curves.append(("projected: made-up records", n, found.rmse / n))
    return lines(
        curves,
        "records n",
        "rmse, as a share of n",
        f"{len(work)} conjunctions of 3 of 10 at epsilon = 1",
    )


def _l1(result: sf.Release, column: str, exact: np.ndarray) -> float:
    """Mean over tables of the L1 distance to the exact counts, over the records."""
    frame = result.answers()
    off = (frame[column] - exact).abs().groupby(frame["group"], sort=False).sum()
    return float(off.mean() / 48_842)


def _adult(names: Sequence[str]) -> tuple[sf.Workload, np.ndarray]:
    """All pairs of some attributes of Adult, and the exact answers (a huge budget)."""
    import itertools

    domain = sf.example("adult").domain
    work = sf.marginals(domain, list(itertools.combinations(names, 2)))
    plan = sf.plan(work, sf.Budget(mu=1000), mechanism="gaussian-groups")
    exact = plan.release(sf.example("adult").table, project=False)
    return work, exact.answers()["unbiased"].round().to_numpy()


MANY = ("age", "education", "occupation", "race", "sex", "relationship", "marital-status", "income")


def rows() -> alt.LayerChart:
    work, exact = _adult(MANY)
    curves: list[Curve] = []
    for epsilon in (0.1, 0.3, 1, 3):
        plan = sf.plan(work, sf.Budget(epsilon=epsilon, delta=1e-9))
        result = plan.release(sf.example("adult").table)
        curves.append(("as measured", epsilon, _l1(result, "unbiased", exact)))
        curves.append(("projected by rows", epsilon, _l1(result, "value", exact)))
    curves.sort(key=lambda c: c[0])
    return lines(
        curves, "epsilon, delta = 1e-9", "mean L1 distance of a table", "28 two-way tables of Adult"
    )


def relaxations() -> alt.LayerChart:
    d, n = 14, 500
    pairs = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(d)}), 2)
    curves: list[Curve] = []
    from sfumato.random import Draws

    source = Draws("relaxations")
    hidden = source.uniforms(n) < 0.5
    records = np.where(
        source.uniforms(n * d).reshape(n, d) < 0.8, hidden[:, None], ~hidden[:, None]
    )
    cells = np.ravel_multi_index(records.T.astype(int), (2,) * d)
    histogram = np.bincount(cells, minlength=2**d).reshape((2,) * d)
    truth = pairs.evaluate(histogram)
    for sigma in (10, 30, 100, 300):
        noisy = truth + sigma * source.normals(truth.size)
        curves.append(("noisy answers", sigma, float(np.sqrt(np.mean((noisy - truth) ** 2)))))
        for body, name in (
            ("local", "locally consistent"),
            ("semidefinite", "moments"),
            ("exact", "answers of records"),
        ):
            found = sf.project(noisy, pairs, n, onto=body, seconds=20)
            curves.append((name, sigma, float(np.sqrt(np.mean((found.answers - truth) ** 2)))))
    curves.sort(
        key=lambda c: [
            "noisy answers",
            "locally consistent",
            "moments",
            "answers of records",
        ].index(c[0])
    )
    return lines(
        curves,
        "standard deviation of the noise",
        "rmse, in counts",
        f"All pairs of {d} yes/no attributes, {n} records",
    )


def widths() -> alt.LayerChart:
    curves: list[Curve] = []
    sizes = (4, 16, 64, 256, 1024)
    for n in sizes:
        work = sf.prefixes(sf.Domain({"age": n}), "age")
        curves.append(("running totals: sqrt(2 k ln m)", n, sqrt(2 * n * log(n))))
        curves.append(("running totals: width", n, float(sf.gaussian_width(work))))
        table = sf.marginals(sf.Domain({"age": n}), 1)
        curves.append(("one table: width", n, float(sf.gaussian_width(table))))
    curves.sort(
        key=lambda c: [
            "running totals: sqrt(2 k ln m)",
            "one table: width",
            "running totals: width",
        ].index(c[0])
    )
    return lines(
        curves, "cells", "Gaussian width of the hull", "How far answers of one record reach"
    )


def selection() -> alt.LayerChart:
    """How much worse than the best the chosen one of 100 is, on the average."""
    scores = np.arange(100, dtype=np.int64)
    words, runs = sf.study.system_words(), 400
    curves: list[Curve] = []
    for noise, name in (
        ("laplace", "report-noisy-max, Laplace"),
        ("gumbel", "exponential mechanism"),
        ("exponential", "permute-and-flip"),
    ):
        for epsilon in (0.1, 0.2, 0.5, 1, 2):
            held = sf.study.Sensitive(scores)
            chosen = [
                sf.study.report_noisy_max(
                    held, Fraction(epsilon).limit_denominator(100) / 2, words, noise
                )
                for _ in range(runs)
            ]
            curves.append((name, epsilon, 99 - float(np.mean(chosen)) + 1e-3))
    return lines(
        curves,
        "epsilon",
        "mean loss of score",
        "Choosing one of 100 scores 0, 1, ..., 99 (400 draws each)",
        is_log=False,
    )


def ranges() -> alt.LayerChart:
    """How often both ends of a range are within an octave of the 5% and 95% points."""
    plan = sf.plan_discovery(sf.Numeric.discover("x"), sf.Budget(epsilon=0.1))
    (search,) = plan.searches
    sizes = (500, 700, 1000, 1500, 2000, 3000, 5000, 7000, 10_000)
    return lines(
        [
            (shape, n, search.simulated(n, shape).octave)
            for shape in ("constant", "pareto", "uniform", "normal", "lognormal")
            for n in sizes
        ],
        "records",
        "share of searches",
        "Both ends within an octave of the 5% and 95% points, epsilon = 0.1",
        is_log=False,
    )


def keys() -> alt.LayerChart:
    """How often a key is published, against the number of people who have it."""
    curves: list[Curve] = []
    for rows in (1, 3, 10, 30):
        unit = sf.PrivacyUnit("person", rows)
        wanted = sf.Category.discover("city")
        plan = sf.plan_discovery(wanted, sf.Budget(epsilon=1, delta=1e-6), unit=unit)
        law = plan.searches[0].law
        name = f"{rows} key{'s' if rows > 1 else ''} a person ({law.name})"
        curves += [(name, n, law.chance(n)) for n in range(1, 200, 3)]
    return lines(
        curves,
        "people who have the key",
        "share of runs that publish it",
        "Published keys at epsilon = 1, delta = 1e-6",
        is_log=False,
    )


def adaptive() -> alt.LayerChart:
    work, exact = _adult(MANY)
    curves: list[Curve] = []
    for epsilon in (0.1, 0.3, 1, 3):
        budget = sf.Budget(epsilon=epsilon, delta=1e-9)
        result = sf.plan(work, budget).release(sf.example("adult").table, project="nearest")
        curves.append(("every table measured", epsilon, _l1(result, "unbiased", exact)))
        curves.append(("every table measured, projected", epsilon, _l1(result, "value", exact)))
        chosen = sf.plan_adaptive(work, budget).release(sf.example("adult").table)
        curves.append(("adaptive tables", epsilon, _l1(chosen, "value", exact)))
    order = ["every table measured", "every table measured, projected", "adaptive tables"]
    curves.sort(key=lambda c: order.index(c[0]))
    return lines(
        curves, "epsilon, delta = 1e-9", "mean L1 distance of a table", "28 two-way tables of Adult"
    )


def mwem() -> alt.LayerChart:
    import pandas as pd

    domain = sf.Domain({"a": 8, "b": 8})
    work = sf.ranges(domain, "a", by=["b"])
    curves: list[Curve] = []
    for n in (10, 30, 100, 300, 1000, 3000):
        codes = [(i * i + i // 7) % 64 if i % 3 else i % 8 for i in range(n)]
        table = pd.DataFrame({"a": [c // 8 for c in codes], "b": [c % 8 for c in codes]})
        truth = work.evaluate(np.bincount(codes, minlength=64).reshape(8, 8))
        budget = sf.Budget(epsilon=0.1)
        for name, plan in (
            ("best plan, unbiased", sf.plan(work, budget)),
            ("MWEM", sf.plan_adaptive(work, budget, method="mwem")),
        ):
            errors = []
            for _ in range(3):
                result = plan.release(table)
                column = "unbiased" if name != "MWEM" else "value"
                errors.append(np.mean((result.answers()[column].to_numpy() - truth) ** 2))
            curves.append((name, n, sqrt(float(np.mean(errors))) / n))
    curves.sort(key=lambda c: c[0], reverse=True)
    return lines(
        curves,
        "records n",
        "rmse, as a share of n",
        f"{len(work)} ranges by group at epsilon = 0.1 (3 releases each)",
    )


def boosting() -> alt.LayerChart:
    from sfumato.random import Draws

    source = Draws("boosting")
    work = sf.ranges(sf.Domain({"u": 48}), "u")
    curves: list[Curve] = []
    histogram = (source.uniforms(48) * 200).astype(int)
    truth = work.evaluate(histogram)
    for unit in (5, 10, 20, 50, 100):
        rounded = np.round(truth / unit) * unit
        curves.append(("as rounded", unit, float(np.abs(rounded - truth).max())))
        for objective, name in (("rmse", "least squares"), ("max", "least largest difference")):
            found = sf.project(rounded, work, float(histogram.sum()), objective=objective)
            curves.append((name, unit, float(np.abs(found.answers - truth).max())))
    curves.sort(
        key=lambda c: ["as rounded", "least squares", "least largest difference"].index(c[0])
    )
    return lines(
        curves,
        "answers rounded to multiples of",
        "largest error, in counts",
        f"{len(work)} rounded ranges of 48 cells",
        is_log=False,
    )


def sparse_vector() -> alt.LayerChart:
    curves: list[Curve] = []
    budget = sf.Budget(epsilon=1)
    for k in (10, 30, 100, 300, 1000, 3000):
        curves.append(("noise on every count", k, sf.study.laplace_error(k, 1, 1.0, 0.05, k)))
        for alerts in (10, 3, 1):
            if alerts < k:
                found = sf.watch(k, budget, threshold=1000, alerts=alerts)
                curves.append((f"sparse vector, {alerts} found at most", k, found.tolerance))
    order = ["noise on every count", *(f"sparse vector, {c} found at most" for c in (10, 3, 1))]
    curves.sort(key=lambda c: order.index(c[0]))
    return lines(
        curves, "counts watched, k", "all right up to, in counts (95%)", "Alerts at epsilon = 1"
    )


def streams() -> alt.LayerChart:
    curves: list[Curve] = []
    for steps in (16, 64, 256, 1024, 4096):
        for strategy, name in (
            ("tree", "binary tree"),
            ("toeplitz", "square root"),
            ("optimal", "optimal, used here"),
        ):
            counter = sf.Stream(steps, sf.Budget(mu=1), strategy=strategy)
            curves.append((name, steps, counter.forecast.rmse))
    order = ["binary tree", "square root", "optimal, used here"]
    curves.sort(key=lambda c: order.index(c[0]))
    return lines(curves, "steps", "rmse of the running total", "A stream at mu = 1", is_log=False)


def randomized_response() -> alt.LayerChart:
    k, cells, beta = 1000, 16, 0.05
    response = sf.study.RandomizedResponse(1, cells)
    curves: list[Curve] = []
    for n in np.geomspace(1000, 10**8, 11):
        curves.append(("Laplace on the queries", n, sf.study.laplace_error(k, 1, 1.0, beta, k) / n))
        curves.append(("Laplace on the table", n, sf.study.table_error(k, cells, 1, 1.0, beta) / n))
        curves.append(
            ("randomized response", n, sf.study.response_error(response, round(n), k, beta) / n)
        )
    curves.sort(key=lambda c: c[0].startswith("random"))
    return lines(
        curves,
        "records n",
        "all within this share of n (95%)",
        f"{k:,} queries on {cells} cells at epsilon = 1",
    )


FIGURES: dict[str, Callable[[], alt.LayerChart | alt.HConcatChart]] = {
    "laplace": laplace,
    "gaussian": gaussian,
    "contingency-table": contingency_table,
    "binary-tree": binary_tree,
    "wavelet": wavelet,
    "fourier": fourier,
    "conjunction-sets": conjunction_sets,
    "laplace-optimum": laplace_optimum,
    "factorization": factorization,
    "projection-n": projection,
    "rows": rows,
    "relaxations": relaxations,
    "widths": widths,
    "selection": selection,
    "keys": keys,
    "ranges": ranges,
    "adaptive": adaptive,
    "mwem": mwem,
    "boosting": boosting,
    "sparse-vector": sparse_vector,
    "streams": streams,
    "randomized-response": randomized_response,
}
