# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants [--seed S] [--number N]`: which share of small mistakes is noticed.

Mutants are drawn at random, in each module as many as its share of all of them. Each is tried
with the tests that run its statement. `docs/mutants.md` has the figures and the survivors.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.mutants.cover import modules
from tests.mutants.rules import Mutant, is_program, mutants_of
from tests.mutants.trial import Place, load
from tests.postgres_server import NoServer, postgres_server


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
        """Tests for a mutant; of a table of cases first one, then the others."""
        lines = self.lines[path]
        first, last = mutant.lines
        if mutant.on_import:  # any test that enters the module
            found = set().union(*lines.values())
        else:
            found = {t for line in range(first, last + 1) for t in lines.get(str(line), ())}
        cases: Counter[str] = Counter()
        order = []
        for test in sorted(found, key=lambda t: (self.seconds[t], t)):
            function = test.partition("[")[0]
            is_near = Path(path).stem in Path(function.partition("::")[0]).stem
            order.append((cases[function], not is_near, self.seconds[test], test))
            cases[function] += 1
        chosen: list[str] = []
        for *_, test in sorted(order):
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
    parser.add_argument("--seconds", type=float, default=20, help="most seconds of tests for one")
    parser.add_argument("--part", default="1/1", help="1/2 and 2/2 are two halves of the sample")
    parser.add_argument("--folder", type=Path, default=Path(".mutants"), help="where results go")
    chosen = parser.parse_args()
    chosen.folder.mkdir(exist_ok=True)
    cover = chosen.folder / "cover.json"
    if not cover.exists():
        subprocess.run([sys.executable, "-m", "tests.mutants.cover", str(cover)], check=True)
    seen = json.loads(cover.read_text())
    tests = Tests(seen, chosen.seconds)
    part, parts = map(int, chosen.part.split("/"))
    sample = drawn(chosen.number, chosen.seed)[part - 1 :: parts]
    out = chosen.folder / f"seed-{chosen.seed}-part-{part}-of-{parts}.jsonl"
    done = set(out.read_text().splitlines()) if out.exists() else set()
    known = {json.loads(line)["mutant"] for line in done}
    load(seen["modules"])
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except NoServer:
            server = None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        place = Place(Path.cwd(), folder, server)
        check(place, tests)
        with out.open("a") as results:
            for path, mutant in sample:
                name = shown(path, mutant)
                if name in known:
                    continue
                result = tried(place, tests, path, mutant)
                results.write(json.dumps({"mutant": name, **result}) + "\n")
                results.flush()
                print(result["outcome"], name, flush=True)


def check(place: Place, tests: Tests) -> None:
    """Unchanged sources must survive, and sources that cannot be imported must not."""
    cheapest: dict[str, str] = {}
    for test in sorted(tests.seconds, key=lambda t: -tests.seconds[t]):
        cheapest[test.partition("::")[0]] = test
    chosen = sorted(cheapest.values())
    path = "src/sfumato/budget/curve.py"
    source = Path(path).read_bytes()
    for changed, expected in ((source, "survived"), (source + b"\nraise ValueError", "killed")):
        found = place.outcome(path, changed, chosen, 60)
        if found != expected:
            raise SystemExit(f"expected {expected}, found {found}:\n{place.output()}")


def tried(place: Place, tests: Tests, path: str, mutant: Mutant) -> dict:
    """The outcome for one mutant."""
    selected = tests.of(path, mutant)
    if not selected:
        return {"outcome": "no test", "tests": 0}
    changed = mutant.applied_to(Path(path).read_bytes())
    outcome = place.outcome(path, changed, selected, tests.time(selected))
    return {"outcome": outcome, "tests": len(selected)}


if __name__ == "__main__":
    main()
