"""Equal inputs have equal plans: whatever the clock, the load, the threads and the cache do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.refine.consistency import Refined, refined
from sfumato.solve import effort as effort_module
from sfumato.strategy.base import fingerprint
from sfumato.workload.workload import Workload

BUDGET = sf.Budget(epsilon=1, delta=1e-9)


def _yes_no() -> Workload:
    """All pairs of 16 yes/no attributes."""
    return sf.marginals(sf.Domain({f"a{i}": 2 for i in range(16)}), 2)


def _affine() -> Workload:
    """Prefixes and ``i + j <= c`` on pairs of seven attributes."""
    size, names = 3, [f"a{i}" for i in range(7)]
    domain = sf.Domain(dict.fromkeys(names, size))
    work = sf.prefixes(domain, names[0])
    for name in names[1:]:
        work = work | sf.prefixes(domain, name)
    sums = np.add.outer(np.arange(size), np.arange(size)).reshape(-1)
    rows = np.array([(sums <= c).astype(int) for c in range(2 * size - 1)])
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            work = work | sf.explicit(domain, [first, second], rows)
    return work


def _mixed() -> Workload:
    """Prefixes by sex beside tables: a search over orbits, and templates under Laplace noise."""
    domain = sf.Domain({"age": 30, "sex": 2, "race": 5})
    return sf.prefixes(domain, "age", by=["sex"]) | sf.marginals(domain, 2)


WORKLOADS = {"yes/no": _yes_no, "affine": _affine, "mixed": _mixed}


def digest(plan: sf.Plan) -> str:
    """What is measured, the noise, and the certificate: all bits of them."""
    out = hashlib.sha256(fingerprint([b.term for b in plan.strategy.blocks]))
    out.update(repr((plan.mechanism, plan.noise, plan.bound, plan.stopped_early)).encode())
    return out.hexdigest()


def _raises() -> float:
    raise AssertionError("a clock was read")


class _Jumping:
    """A clock on a machine under such load that every look at it comes an hour later."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 3600.0
        return self.now


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_reads_no_clock_unless_seconds_are_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WORKLOADS[name]()
    expected = digest(sf.plan(work, BUDGET, cache=False))
    for clock in (_raises, _Jumping()):
        with monkeypatch.context() as patch:
            patch.setattr(effort_module, "thread_time", clock)
            for said in ("monotonic", "thread_time", "perf_counter", "process_time", "time"):
                patch.setattr(f"time.{said}", clock)
            assert digest(sf.plan(work, BUDGET, cache=False)) == expected


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_is_the_same_with_a_cold_and_a_warm_cache(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        effort_module, "LIMITS", replace(effort_module.LIMITS, stored_search_minimum=0.0)
    )
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    work = WORKLOADS[name]()
    plans = [sf.plan(work, BUDGET, cache=cache) for cache in (False, True, True)]
    assert len({digest(plan) for plan in plans}) == 1
    other = sf.plan(work, sf.Budget(mu=2))
    assert digest(other) == digest(sf.plan(work, sf.Budget(mu=2), cache=False))


@pytest.mark.parametrize("seconds", [1e-6, 0.05])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_that_a_clock_stops_says_so_and_is_no_worse_than_plain_noise(
    name: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WORKLOADS[name]()
    plain = min(sf.plan(work, BUDGET, mechanism=m).rmse for m in ("laplace", "gaussian"))
    monkeypatch.setattr(effort_module, "thread_time", _Jumping())
    hurried = sf.plan(work, BUDGET, seconds=seconds, cache=False)
    assert hurried.stopped_early
    assert "stopped early" in hurried.headline
    assert hurried.rmse <= plain * (1 + 1e-9)


@pytest.mark.parametrize("is_large", [False, True])
def test_the_answers_of_a_release_depend_on_no_clock(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells that can be listed are projected, of others weighted rows are fitted."""
    sizes = dict.fromkeys("abcdefgh", 8) if is_large else dict.fromkeys("abc", 4)
    domain = sf.Domain(sizes)
    plan = sf.plan(sf.marginals(domain, 2), BUDGET, cache=False)
    table = {n: np.arange(300) * (i + 3) % domain[n].size for i, n in enumerate(sizes)}
    first = plan.release(pd.DataFrame(table))
    again = refined(
        first.forecast, first.estimates.measured, first.estimates.unbiased, shrinks=True
    )
    monkeypatch.setattr(effort_module, "thread_time", _raises)
    later = refined(
        first.forecast, first.estimates.measured, first.estimates.unbiased, shrinks=True
    )
    assert isinstance(again, Refined)
    assert isinstance(later, Refined)
    assert again.method == ("rows" if is_large else "histogram")
    for one, other in zip(again.answers, later.answers, strict=True):
        assert np.array_equal(one, other)
    assert plan.projected(300).as_json() == plan.projected(300).as_json()


def test_the_limit_in_steps_is_the_same_everywhere_and_lowers_the_effort() -> None:
    work = _mixed()
    few = [sf.plan(work, sf.Budget(mu=1), steps=1e6, cache=False) for _ in range(2)]
    assert digest(few[0]) == digest(few[1])
    assert not few[0].stopped_early
    full = sf.plan(work, sf.Budget(mu=1), cache=False)
    assert full.rmse <= few[0].rmse


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from {module} import BUDGET, WORKLOADS, digest
import sfumato as sf
print([digest(sf.plan(make(), BUDGET, cache=False)) for make in WORKLOADS.values()])
"""


def _fresh(threads: int) -> str:
    """The digests of all plans in a process of its own."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    source = Path(sf.__file__).parents[1]
    environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": str(source)}
    script = SCRIPT.format(module=Path(__file__).stem, folder=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_fresh_processes_with_one_and_two_threads_make_the_same_plans() -> None:
    here = str([digest(sf.plan(make(), BUDGET, cache=False)) for make in WORKLOADS.values()])
    assert _fresh(1).strip() == here
    assert _fresh(2).strip() == here
