# SPDX-License-Identifier: Apache-2.0
"""Files of earlier versions: ledgers of every kind, a spec, a schema, a release.

``python -m tests.golden.old FOLDER`` writes such a folder with the version of today; one that is
there is never written again. ``test_old_files.py`` opens every folder of ``old/`` and asks what was
asked when it was written: the answers must be those of then, and nothing may be spent.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import sfumato as sf
from tests.golden.inside import key_noise, on_another_machine
from tests.golden.people import people, write_people
from tests.golden.plans import PEOPLE
from tests.golden.sections import run
from tests.golden.stored import plain

OLD = Path(__file__).with_name("old")
APPROXIMATE = sf.Budget(epsilon="1/2", delta="1e-9")
PURE = sf.Budget(epsilon="1/4")
TOTAL = sf.Budget(epsilon=9, delta="1e-6")
FILES = ("people.toml", "release.toml", "adaptive.toml", "queries.toml")

PUBLISHED = ("answers.parquet", "provenance.json")

Asked = Callable[[sf.Ledger], object]


def _numbers(release: sf.Release) -> object:
    answers = release.answers()
    return {name: answers[name].tolist() for name in answers.columns if name != "query"}


def _release(ledger: sf.Ledger, budget: sf.Budget = APPROXIMATE, **how: object) -> object:
    work = sf.marginals(PEOPLE, [("sex", "member"), ("age",)])
    plan = sf.plan(work, budget, cache=False)
    return _numbers(plan.release(people(), ledger, name="people", **how))  # type: ignore[arg-type]


def _best(ledger: sf.Ledger) -> object:
    plan = sf.plan(sf.prefixes(PEOPLE, "age", by=["sex"]), sf.Budget(mu="1/4"), cache=False)
    return _numbers(plan.release(people(), ledger, name="people"))


def _means(ledger: sf.Ledger) -> object:
    plan = sf.plan(sf.means(PEOPLE, "income", by=["member"]), APPROXIMATE, cache=False)
    return _numbers(plan.release(people(), ledger, name="people"))


def _adaptive(ledger: sf.Ledger, method: str) -> object:
    work = sf.marginals(PEOPLE, [("sex", "member"), ("sex", "age")])
    plan = sf.plan_adaptive(work, APPROXIMATE, method=method, rounds=2)  # type: ignore[arg-type]
    return _numbers(plan.release(people(), ledger, name="people"))  # type: ignore[arg-type]


def _correction(ledger: sf.Ledger) -> object:
    correction = sf.correct(sf.marginals(PEOPLE, [("sex",)]), APPROXIMATE, 20, corrections=1)
    done = correction.release(people(), [230.0, 500.0, 10.0], ledger, name="people")
    return done.answers().to_dict("list")


def _watched(ledger: sf.Ledger) -> object:
    watch = sf.watch(14, APPROXIMATE, 10, expected=[20.0] * 13 + [2.0], alerts=1, counts=True)
    return watch.release(people(), PEOPLE, "day", ledger, name="people").alerts().to_dict("list")


QUESTIONS = (
    "SELECT COUNT(*) FROM data WHERE age >= 6",
    "SELECT COUNT(*) FROM data WHERE sex = 'Female' AND member",
    "SELECT SUM(income) FROM data WHERE member",
    "SELECT COUNT(*) FROM data WHERE age < 12 OR sex IS NULL",
)


def _session(ledger: sf.Ledger) -> object:
    asked = (people(), PEOPLE, sf.Budget(epsilon=1, delta="1e-9"))
    options = {"questions": 50, "updates": 3, "records": 400}
    with sf.open_session(*asked, ledger=ledger, name="people", **options) as session:  # type: ignore[arg-type]
        answers = [session.ask(question) for question in QUESTIONS]
        left = session.left().paid_answers
    return [left, *([a.key, a.value, a.low, a.high] for a in answers)]


def _series(ledger: sf.Ledger) -> object:
    watch = sf.watch(5, APPROXIMATE, 50, expected=20, alerts=2)
    return watch.values([20, 300, 21, 22, 400], ledger, name="series").alerts().to_dict("list")


def _watching(ledger: sf.Ledger) -> object:
    """A watch that goes on: two counts at first, and nothing more when it is opened again."""
    live = sf.watch(6, APPROXIMATE, 50, expected=20, alerts=2, counts=True).begin(ledger)
    for count in [20, 300][live.step :]:
        live.add(count)
    live.close()
    return [live.step, live.alerts_left, live.watched().alerts().to_dict("list")]


def _of_ann(ledger: sf.Ledger) -> object:
    allowed = ledger.allowance("ann")
    assert allowed is not None
    spent = _release(ledger, analyst="ann")
    return [spent, repr(allowed.budget), [a.analyst for a in ledger.allowances()]]


LEDGERS: dict[str, dict[str, Asked]] = {
    "kinds": {
        "release": _release,
        "not projected": lambda ledger: _release(ledger, project=False),
        "by hand": lambda ledger: _release(ledger, PURE, key="by hand"),
        "prefixes": _best,
        "means": _means,
        "tables": lambda ledger: _adaptive(ledger, "tables"),
        "mwem": lambda ledger: _adaptive(ledger, "mwem"),
        "boosting": lambda ledger: _adaptive(ledger, "boosting"),
        "correction": _correction,
        "watch": _watched,
        "session": _session,
    },
    "series": {"watch": _series, "watch that goes on": _watching},
    "allowances": {"of ann": _of_ann, "of nobody": lambda ledger: _release(ledger, PURE)},
    "lanes": {"gaussian": _best, "laplace": lambda ledger: _release(ledger, PURE)},
    "frozen": {"release": _release, "laplace": lambda ledger: _release(ledger, PURE)},
}
"""The ledgers, and what is asked of each."""


def _created(name: str) -> sf.Ledger:
    if name == "series":
        return sf.Ledger.create("series.ledger", TOTAL, "series", unit="event")
    total = sf.Budget(epsilon=9, delta="1e-6", pure=2) if name == "lanes" else TOTAL
    ledger = sf.Ledger.create(f"{name}.ledger", total, "people")
    if name == "allowances":
        ledger.allow("ann", sf.Budget(epsilon=2, delta="1e-9"))
        ledger.allow("bob", sf.Budget(rho="1/2"))
    return ledger


def restored(folder: Path, name: str, into: Path) -> Path:
    """The path of a ledger as it was, its head file beside it."""
    path = into / f"{name}.ledger"
    connection = sqlite3.connect(path)
    connection.executescript((folder / f"{name}.sql").read_text())
    connection.close()
    shutil.copy(folder / f"{name}.head", into / f"{name}.ledger.head")
    return path


def asked_of(name: str, ledger: sf.Ledger) -> dict[str, object]:
    """Everything that is asked of a ledger, answered."""
    out = {}
    for title, ask in LEDGERS[name].items():
        key_noise(f"old {name} {title}")
        out[title] = plain(ask(ledger))
    return out


def state_of(ledger: sf.Ledger) -> object:
    """What a ledger says of itself."""
    report = ledger.verify()
    return plain(
        {
            "entries": [[e.key, e.request, e.state, repr(e.cost)] for e in ledger.entries()],
            "remaining": ledger.remaining().describe(),
            "spent": float(1 - ledger.remaining().share),
            "problems": list(report.problems),
            "records": [report.records, report.free, report.states],
            "is frozen": ledger.is_frozen(),
        }
    )


def asked_by_specs(folder: Path) -> object:
    """What commands say of the specs of a folder, whose ledger is ``people.ledger``."""
    commands = (
        ("release", "release.toml", "--yes", "--json", "--quiet"),
        ("release", "adaptive.toml", "--yes", "--json", "--quiet", "--out", "adaptive-out"),
        ("ask", "release.toml", *QUESTIONS, "--yes", "--json", "--quiet"),
        ("ledger", "show", "people.ledger", "--json"),
        ("ledger", "verify", "people.ledger", "--json"),
    )
    with chdir(folder):
        return [
            plain(json.loads(str(run(*command)["out"])), {str(Path.cwd()): "FOLDER"})
            for command in commands
        ]


def _dump(path: Path, out: Path) -> None:
    connection = sqlite3.connect(path)
    out.with_suffix(".sql").write_text("\n".join(connection.iterdump()) + "\n")
    connection.close()
    shutil.copy(path.with_name(path.name + ".head"), out.with_suffix(".head"))


def write_old(out: Path) -> None:
    """Write a folder of files; refused if it is there."""
    out.mkdir(parents=True)
    stored: dict[str, object] = {}
    with TemporaryDirectory() as made, chdir(made), on_another_machine():
        write_people(Path())
        for name in LEDGERS:
            ledger = _created(name)
            answers = asked_of(name, ledger)
            if name == "series":
                counter = sf.Stream(8, sf.Budget(mu="1/4"), ledger=ledger)
                counter.add_many([1, 0, 1])
            if name == "frozen":
                ledger.set_total(sf.Budget(epsilon=10, delta="1e-6"), "one more survey", by="ann")
                ledger.freeze("audit of May")
            stored[name] = {"answers": answers, "state": state_of(ledger)}
            ledger.close()
            _dump(Path(f"{name}.ledger"), out / name)
        for _ in range(2):  # what is said of answers that are stored
            key_noise("old specs")
            stored["specs"] = asked_by_specs(Path())
        _dump(Path("people.ledger"), out / "people")
        (out / "release").mkdir()
        for file in PUBLISHED:
            shutil.copy(Path("release-out") / file, out / "release" / file)
        for file in FILES:
            shutil.copy(file, out / file)
    (out / "answers.json").write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_old(Path(sys.argv[1]).resolve())
