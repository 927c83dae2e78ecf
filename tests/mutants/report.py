# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants.report FILES`: the share that was killed, and what survived."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from scipy.stats import beta


def interval(killed: int, tried: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson: exact for a plain sample, and no wider than it must be for a spread one."""
    alpha = (1 - confidence) / 2
    low = beta.ppf(alpha, killed, tried - killed + 1) if killed else 0.0
    high = beta.ppf(1 - alpha, killed + 1, tried - killed) if killed < tried else 1.0
    return float(low), float(high)


def main(files: list[str]) -> None:
    """Print the figures of results together."""
    lines = [line for file in files for line in Path(file).read_text().splitlines()]
    results = [json.loads(line) for line in lines]
    outcomes = Counter(result["outcome"] for result in results)
    killed, tried = outcomes["killed"] + outcomes["timeout"], len(results)
    low, high = interval(killed, tried)
    print(f"{killed} of {tried} mutants killed: {killed / tried:.1%}, 95%: {low:.1%} to {high:.1%}")
    print(", ".join(f"{name} {count}" for name, count in outcomes.most_common()))
    by_module: dict[str, list[bool]] = {}
    for result in results:
        is_killed = result["outcome"] in ("killed", "timeout")
        by_module.setdefault(result["mutant"].partition(":")[0], []).append(is_killed)
    for module, kills in sorted(by_module.items()):
        print(f"{module:28} {sum(kills):3} of {len(kills):3}")
    for result in sorted(results, key=lambda r: r["mutant"]):
        if result["outcome"] in ("survived", "no test"):
            print(f"{result['outcome']} {result['mutant']}")


if __name__ == "__main__":
    main(sys.argv[1:])
