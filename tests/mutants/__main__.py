# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants [--seed S] [--number N]`: which share of small mistakes is noticed.

Mutants are drawn at random, in each module as many as its share of all of them. Each is tried
with the tests that run its statement. `docs/mutants.md` has the figures and the survivors.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.mutants.cover import modules
from tests.mutants.rules import Mutant, is_program, mutants_of
from tests.mutants.servers import servers
from tests.mutants.trial import Trials

NEAR = 0.1  # a test of the module itself is asked as if it took this part of its time


def drawn(number: int, seed: int) -> list[tuple[str, Mutant]]:
    """A random sample, spread over the modules in proportion to their mutants."""
    chance = random.Random(seed)
    population = {path: mutants_of(Path(path).read_bytes()) for path in modules()}
    total = sum(map(len, population.values()))
    shares = {path: number * len(found) / total for path, found in population.items()}
    counts = {path: int(share) for path, share in shares.items()}
    rest = sorted(shares, key=lambda path: counts[path] - shares[path])
    for path in rest[: number - sum(counts.values())]:
        counts[path] += 1
    sample = []
    for path, found in population.items():
        source = Path(path).read_bytes()
        programs = (m for m in chance.sample(found, len(found)) if is_program(m, source))
        sample += [(path, mutant) for mutant, _ in zip(programs, range(counts[path]), strict=False)]
    chance.shuffle(sample)
    return sample


class Tests:
    """Which tests to try on a mutant: those that run its statement, the cheap ones first."""

    def __init__(self, seen: dict, most: float):
        self.seconds, self.lines, self.most = seen["seconds"], seen["lines"], most

    def of(self, path: str, mutant: Mutant) -> list[str]:
        """Tests for a mutant: cheap ones first, those of its module, and one case of each table."""
        lines = self.lines[path]
        first, last = mutant.lines
        if mutant.on_import:  # any test that enters the module
            found = set().union(*lines.values())
        else:
            found = {t for line in range(first, last + 1) for t in lines.get(str(line), ())}
        near = {Path(path).stem, Path(path).parent.name} - {
            "vault",
            "run",
            "ledger",
            "privacy",
            "__init__",
        }
        cases: Counter[str] = Counter()
        order = []
        for test in sorted(found, key=lambda t: (self.seconds[t], t)):
            function = test.partition("[")[0]
            cases[function] += 1
            is_near = any(name in Path(function.partition("::")[0]).stem for name in near)
            rank = cases[function] * self.seconds[test] * (NEAR if is_near else 1)
            order.append((rank, test))
        chosen: list[str] = []
        for _, test in sorted(order):
            if chosen and self.time(chosen) + self.seconds[test] > self.most:
                break
            chosen.append(test)
        return chosen

    def time(self, tests: list[str]) -> float:
        """Seconds that tests took when they were watched."""
        return sum(self.seconds[t] for t in tests)


def shown(path: str, mutant: Mutant) -> str:
    """A mutant as one line: where, what was written, what is written instead."""
    source = Path(path).read_bytes()
    before = " ".join(source[mutant.start : mutant.end].decode().split())
    after = " ".join(mutant.text.split())
    return f"{path.removeprefix('src/sfumato/')}:{mutant.line} {mutant.rule}: {before} -> {after}"


def main() -> None:
    """Draw, try, and write one JSON line for every mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn")
    parser.add_argument("--number", type=int, default=400, help="how many")
    parser.add_argument("--seconds", type=float, default=10, help="most seconds of tests for one")
    parser.add_argument("--part", default="1/1", help="1/2 and 2/2 are two halves of the sample")
    parser.add_argument("--folder", type=Path, default=Path(".mutants"), help="where results go")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started ends
    chosen.folder.mkdir(exist_ok=True)
    cover = chosen.folder / "cover.json"
    if not cover.exists():
        subprocess.run([sys.executable, "-m", "tests.mutants.cover", str(cover)], check=True)
    tests = Tests(json.loads(cover.read_text()), chosen.seconds)
    part, parts = map(int, chosen.part.split("/"))
    sample = drawn(chosen.number, chosen.seed)[part - 1 :: parts]
    out = chosen.folder / f"seed-{chosen.seed}-part-{part}-of-{parts}.jsonl"

    def work(trials: Trials) -> None:
        known = set()
        if out.exists():
            known = {json.loads(line)["mutant"] for line in out.read_text().splitlines()}
        check(trials, tests)
        with out.open("a") as results:
            for path, mutant in sample:
                name = shown(path, mutant)
                if name not in known:
                    result = tried(trials, tests, path, mutant)
                    results.write(json.dumps({"mutant": name, **result}) + "\n")
                    results.flush()
                    print(result["outcome"], name, flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, servers():
        Trials(Path(folder), work).run()


def check(trials: Trials, tests: Tests) -> None:
    """A change of nothing must survive, a function that does nothing must not; on import too."""
    path = "src/sfumato/privacy/gaussian.py"
    nothing = Mutant("none", 0, 0, "", 1, (1, 1), on_import=False)
    start = Path(path).read_bytes().index(b"def float_up(")
    inside = start + Path(path).read_bytes()[start:].index(b"try:")
    broken = Mutant("broken", inside, inside, "raise ValueError\n    ", 1, (1, 1), on_import=False)
    near = [t for t in tests.seconds if "test_curve.py" in t][:50]
    for mutant, expected in ((nothing, "survived"), (broken, "killed")):
        for changed in (mutant, replace(mutant, on_import=True)):
            found = trials.outcome(path, changed, near, 60)
            if found != expected:
                text = trials.output.read_text()
                raise SystemExit(f"{mutant.rule}: expected {expected}, found {found}:\n{text}")


def tried(trials: Trials, tests: Tests, path: str, mutant: Mutant) -> dict:
    """The outcome for one mutant."""
    selected = tests.of(path, mutant)
    if not selected:
        return {"outcome": "no test", "tests": 0}
    outcome, killer = trials.tried(path, mutant, {t: tests.seconds[t] for t in selected})
    return {"outcome": outcome, "tests": len(selected), "killer": killer}


if __name__ == "__main__":
    main()
