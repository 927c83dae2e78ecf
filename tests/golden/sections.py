# SPDX-License-Identifier: Apache-2.0
"""The generator: each section of the golden files as the package makes it today."""

from __future__ import annotations

import hashlib
import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import sfumato as sf
from tests.golden.inside import (
    ADA,
    CONFIG,
    CORA,
    asked,
    bearer,
    key_noise,
    served,
    write_served,
)
from tests.golden.people import people, write_people
from tests.golden.plans import CUBE, PEOPLE, PLANS, WIDE
from tests.golden.stored import plain

MANY = 12  # blocks that are listed one by one
TOTAL = sf.Budget(epsilon=20, delta="1e-6")
APPROXIMATE = sf.Budget(epsilon=1, delta="1e-9")


# Plans.


def of_plans() -> dict[str, object]:
    """What is planned: keys, mechanism, errors, noise."""
    return {name: _planned(asked.plan()) for name, asked in PLANS.items()}


def _planned(plan: sf.Plan) -> dict[str, object]:
    measured = plan.measurement()
    noise = measured["noise"]
    assert isinstance(noise, list)
    if len(noise) > MANY:
        text = json.dumps(noise).encode()
        measured["noise"] = [*noise[:3], len(noise), hashlib.sha256(text).hexdigest()]
    return {
        "digest": plan.digest(),
        "request": plan.request(),
        "text": repr(plan).splitlines()[0],
        "mechanism": plan.mechanism,
        "rmse": plan.rmse,
        "largest": plan.largest_error,
        "gamma": plan.gamma,
        "certificate": plan.certificate,
        "cost": repr(plan.cost),
        "groups": [[g.name, g.queries, g.rmse, g.largest] for g in plan.groups[:MANY]],
        "candidates": [c.mechanism for c in plan.candidates],
        "measurement": measured,
        "strategy": plan.strategy.describe()[:MANY],
    }


# Requests of every kind of plan, and the keys under which ledgers have them.


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder that is the working directory."""
    with TemporaryDirectory() as made:
        folder = Path(made).resolve()
        with chdir(folder):
            yield folder


def _ledger(name: str, **options: object) -> sf.Ledger:
    return sf.Ledger.create(f"{name}.ledger", TOTAL, name, **options)  # type: ignore[arg-type]


def _entries(ledger: sf.Ledger) -> list[dict[str, object]]:
    return [
        {"key": e.key, "request": json.loads(e.request), "state": e.state, "cost": repr(e.cost)}
        for e in ledger.entries()
    ]


def of_requests() -> dict[str, object]:
    """Request and key of everything that a ledger can be debited for."""
    made: dict[str, Callable[[], object]] = {
        **{f"adaptive {m}": lambda m=m: _adaptive_request(m) for m in METHODS},  # type: ignore[misc]
        "watch": _watch,
        "watch as it comes": _watching,
        "correction": _correction,
        "selection": _selection,
        "stream": _stream,
        "session": _session,
        "planned release": _plan_in_ledger,
    }
    out = {}
    for name, make in made.items():
        key_noise(f"golden {name}")
        with _folder():
            out[name] = make()
    return out


METHODS = ("tables", "mwem", "boosting")


def _adaptive(method: str) -> sf.AdaptivePlan:
    work = sf.marginals(CUBE, 2) if method == "tables" else sf.prefixes(CUBE, "a", by=["b"])
    return sf.plan_adaptive(work, APPROXIMATE, method=method, rounds=3)  # type: ignore[arg-type]


def _adaptive_request(method: str) -> object:
    plan = _adaptive(method)
    unit = sf.plan_adaptive(
        plan.workload,
        sf.Budget(rho="1/2"),
        "replace-one",
        method=plan.method,
        unit=sf.PrivacyUnit("id", 2),
    )
    return {
        which: {
            "digest": each.digest(),
            "request": each.request(),
            "rounds": each.rounds,
            "mechanism": each.mechanism,
            "cost": repr(each.cost),
            "text": re.sub(r"[\d.,]+ seconds?", "N seconds", repr(each)),
        }
        for which, each in (("plain", plan), ("unit", unit))
    }


def _watch() -> object:
    watch = sf.watch(14, APPROXIMATE, 60, expected=20, alerts=2, counts=True, side="above")
    ledger = _ledger("people")
    day = watch.release(people(), PEOPLE, "day", ledger, name="people")
    again = watch.release(people(), PEOPLE, "day", ledger, name="people")
    below = sf.watch(3, sf.Budget(epsilon=1), 5, expected=[10, 20, 30], side="below")
    events = _ledger("series", unit="event")
    series = below.values([9, 2, 31], events, name="series")
    return {
        "request": watch.request(),
        "below": below.request(),
        "text": [repr(w) for w in (watch, below, day, again, series)],
        "alerts": [d.alerts().to_dict("list") for d in (day, again, series)],
        "frame": day.frame().to_dict("list"),
        "entries": [_entries(ledger), _entries(events)],
    }


def _watching() -> object:
    watch = sf.watch(6, sf.Budget(mu=1), 50, expected=20, alerts=2)
    ledger = _ledger("series")
    found = []
    for part in ([20, 21, 300], [19, 20, 400]):
        live = watch.begin(ledger, name="series")
        found += [live.add(count) for count in part]
        text = repr(live)
        live.close()
    return {"request": watch.request(), "found": found, "text": text, "entries": _entries(ledger)}


def _correction() -> object:
    work = sf.marginals(CUBE, [("a",), ("b",)])
    correction = sf.correct(work, APPROXIMATE, 20, corrections=2)
    ledger = _ledger("cells")
    guessed = [80.0, 80, 80, 80, 80, 100, 133.5, 133]
    done = correction.release(_cells(), guessed, ledger, name="cells")
    return {
        "request": correction.request(),
        "text": [repr(correction), repr(done)],
        "answers": done.answers().to_dict("list"),
        "entries": _entries(ledger),
    }


def _selection() -> object:
    work = sf.marginals(CUBE, [("a",), ("b",)])
    plans = {
        "pure": sf.plan_selection(work, sf.Budget(epsilon=1)),
        "counts": sf.plan_selection(work, APPROXIMATE, top=2, counts=True),
        "rho": sf.plan_selection(work, sf.Budget(rho="1/8"), which="smallest"),
    }
    out = {}
    for name, plan in plans.items():
        ledger = _ledger(name)
        chosen = [plan.release(_cells(), ledger, name=name) for _ in range(2)]
        out[name] = {
            "request": plan.request(),
            "text": [repr(plan), *map(repr, chosen)],
            "chosen": chosen[0].as_json(),
            "entries": _entries(ledger),
        }
    return out


def _stream() -> object:
    out = {}
    options: dict[str, Mapping[str, object]] = {
        "totals": {},
        "windows": {"window": 4},
        "tree": {"strategy": "tree", "largest": 3},
        "pure": {"strategy": "laplace-tree", "neighbours": "replace-one"},
        "toeplitz": {"strategy": "toeplitz", "dimensions": ["north", "south"]},
    }
    for name, chosen in options.items():
        neighbours = chosen.get("neighbours", "add-remove")
        ledger = sf.Ledger.create(f"{name}.ledger", TOTAL, "stream", neighbours)  # type: ignore[arg-type]
        budget = sf.Budget(epsilon=1) if name == "pure" else sf.Budget(mu=1)
        counter = sf.Stream(16, budget, ledger=ledger, **chosen)  # type: ignore[arg-type]
        value = [1, 0] if "dimensions" in chosen else 1
        counter.add_many([value] * 6)
        forecast = counter.forecast
        out[name] = {
            "request": forecast.request(),
            "digest": forecast.digest(),
            "text": repr(counter),
            "rmse": forecast.rmse,
            "certificate": forecast.certificate,
            "candidates": [[c.mechanism, c.rmse] for c in forecast.candidates],
            "released": counter.released().to_dict("list"),
            "entries": _entries(ledger),
        }
    return out


QUESTIONS = (
    "SELECT COUNT(*) FROM data WHERE age >= 6",
    "select count(*) from people where not age < 6",
    "SELECT COUNT(*) FROM data WHERE sex = 'Female' AND member",
    "SELECT SUM(income) FROM data WHERE member",
    "SELECT COUNT(*) FROM data WHERE age < 12 OR sex IS NULL",
)
BY_SEX = "SELECT sex, COUNT(*) FROM data WHERE day < '2024-01-08' GROUP BY sex"


def _session() -> object:
    options = {"questions": 100, "updates": 4, "records": 400}
    plan = sf.plan_session(PEOPLE, APPROXIMATE, **options)  # type: ignore[arg-type]
    ledger = _ledger("people")
    asked = (people(), PEOPLE, APPROXIMATE)
    with sf.open_session(*asked, ledger=ledger, name="people", **options) as session:  # type: ignore[arg-type]
        keys = [session.read(q).key for q in QUESTIONS]
        forecast = session.estimate(QUESTIONS[0])
        answers = [session.ask(q) for q in QUESTIONS]
        grouped = session.ask_frame(BY_SEX).to_dict("list")
        name, left = session.name, session.left()
    others = [
        sf.plan_session(PEOPLE, sf.Budget(epsilon=1), learning="hedge"),
        sf.plan_session(CUBE, sf.Budget(rho="1/2"), "replace-one", unit=sf.PrivacyUnit("id", 2)),
    ]
    return {
        "plans": [
            [repr(p), p.updates, p.threshold, p.free_bound, p.paid_bound, repr(p.epoch_cost)]
            for p in (plan, *others)
        ],
        "keys": keys,
        "name": name,
        "left": [left.paid_answers, left.share],
        "forecast": [forecast.free_bound, forecast.paid_error, forecast.paid_bound],
        "answers": [[a.key, a.question, a.value, a.low, a.high, a.how] for a in answers],
        "grouped": grouped,
        "entries": _entries(ledger),
    }


def _plan_in_ledger() -> object:
    ledger = sf.Ledger.create("people.ledger", sf.Budget(epsilon=1), "people")
    plan = sf.plan(sf.marginals(PEOPLE, [("sex",)]), sf.Budget(epsilon="1/2"), ledger=ledger)
    assert plan.in_ledger is not None
    before = plan.in_ledger.as_json()
    plan.release(people(), ledger, name="people")
    plan.release(people(), ledger, name="people", key="by hand")
    again = sf.plan(plan.workload, plan.budget, ledger=ledger)
    large = sf.plan(plan.workload, sf.Budget(epsilon=2), ledger=ledger)
    assert again.in_ledger is not None
    assert large.in_ledger is not None
    return {
        "in ledger": [before, again.in_ledger.as_json(), large.in_ledger.as_json()],
        "text": repr(large),
        "entries": _entries(ledger),
    }


# Releases.


def _cells() -> object:
    import pandas as pd

    rows = range(400)
    return pd.DataFrame(
        {
            "id": [i // 2 for i in rows],
            "a": [(i * 3) % 5 if i % 2 else 0 for i in rows],
            "b": [(i * i) % 3 for i in rows],
            "c": [i % 2 for i in rows],
        }
    )


def _wide() -> object:
    import pandas as pd

    return pd.DataFrame({f"w{i}": [(r * (i + 3)) % 8 for r in range(300)] for i in range(12)})


def of_releases() -> dict[str, object]:
    """Answers, provenance and files of releases with repeatable noise."""
    tables = sf.marginals(CUBE, 2)
    by_sex = sf.prefixes(PEOPLE, "age", by=["sex"])
    known = sf.Constraints(CUBE, ["a = 4 and b = 2"], [([], 400)])
    levels = sf.product(PEOPLE, {"age": "groups(stage)", "sex": "identity"})
    means = sf.means(PEOPLE, "income", by=["member"]) | sf.sums(PEOPLE, "age")
    pure, person = sf.Budget(epsilon=1), {"unit": sf.PrivacyUnit("id", 2)}
    replaced, public = {"neighbours": "replace-one"}, _cells()
    made: dict[str, tuple[sf.Workload, sf.Budget, dict[str, object], dict[str, object]]] = {
        "projected": (tables, APPROXIMATE, {}, {}),
        "not projected": (tables, APPROXIMATE, {}, {"project": False}),
        "nearest": (tables, pure, {}, {"project": "nearest"}),
        "bounds": (by_sex, sf.Budget(mu=1), {}, {"project": "bounds"}),
        "constraints": (tables, sf.Budget(rho="1/8"), {}, {"constraints": known}),
        "bootstrap": (tables, sf.Budget(mu=1), {}, {"intervals": "bootstrap"}),
        "public guess": (tables, sf.Budget(mu="1/4"), {}, {"public": public}),
        "means": (means, APPROXIMATE, {}, {}),
        "levels": (levels, sf.Budget(mu=1), {}, {}),
        "unit": (sf.marginals(PEOPLE, [("sex", "member")]), APPROXIMATE, person, {}),
        "replace-one": (sf.marginals(PEOPLE, [("sex", "age")]), sf.Budget(mu=1), replaced, {}),
        "largest error": (tables, sf.Budget(mu=1), {"objective": "max"}, {}),
        "bias": (
            tables,
            sf.Budget(mu="1/20"),
            {"allow_bias": True, "records": 400},
            {"project": False},
        ),
        "wide": (sf.marginals(WIDE, [("w0", "w1"), ("w1", "w2"), ("w5",)]), APPROXIMATE, {}, {}),
        "conditions": (
            sf.predicates(PEOPLE, ["age < 12 or member", "sex = 'Male'", "income >= 500"]),
            sf.Budget(mu=1),
            {},
            {},
        ),
        "dates": (sf.marginals(PEOPLE, [("day",)]), pure, {}, {}),
    }
    out: dict[str, object] = {}
    for name, (work, budget, options, how) in made.items():
        key_noise(f"golden {name}")
        plan = sf.plan(work, budget, cache=False, **options)  # type: ignore[arg-type]
        first = work.domain.names[0]
        table = {"a": _cells, "w0": _wide}.get(first, people)()
        with _folder():
            neighbours = str(options.get("neighbours", "add-remove"))
            ledger = sf.Ledger.create("a.ledger", TOTAL, "table", neighbours)  # type: ignore[arg-type]
            out[name] = _released(plan.release(table, ledger, name="table", **how))  # type: ignore[arg-type]
    for method in METHODS:
        key_noise(f"golden {method}")
        with _folder():
            ledger = _ledger("table")
            release = _adaptive(method).release(_cells(), ledger, name="table")
            out[f"adaptive {method}"] = _released(release)
    key_noise("golden asked of a release")
    with _folder():
        out["asked of a release"] = _asked_of_a_release()
    return out


def _asked_of_a_release() -> object:
    """What can be read off a release besides its answers, at no cost."""
    work = sf.prefixes(PEOPLE, "age") | sf.marginals(PEOPLE, [("sex", "member")])
    work |= sf.ranges(PEOPLE, "day")
    release = sf.plan(work, sf.Budget(mu=1), cache=False).release(people())
    groups = release.groups
    return {
        "groups": groups,
        "quantiles": release.quantiles("age", [0.25, 0.5]).to_dict("list"),
        "ranges": release.ranges("day", [("2024-01-03", "2024-01-07")]).to_dict("list"),
        "covariance": release.covariance(groups[1], [0, 1]),
        "total": release.total,
        "level": release.answers(level=0.5).iloc[:4].to_dict("list"),
        "synthetic": release.synthetic(8).to_dict("list"),
        "text": [repr(release), release._repr_html_()],
    }


def _released(release: sf.Release) -> dict[str, object]:
    """All that a release writes, without times, versions and paths."""
    import pyarrow.parquet as pq

    paths = release.save("out", csv=True, synthetic=5)
    written = json.loads(Path("out/provenance.json").read_text())
    schema = pq.read_schema("out/answers.parquet")
    return {
        "text": repr(release),
        "answers": {n: c.tolist() for n, c in release.answers().items()},
        "provenance": written,
        "files": sorted(paths),
        "parquet": [[f.name, str(f.type), f.nullable] for f in schema],
        "parquet metadata": sorted(k.decode() for k in schema.metadata or {}),
        "csv": {p.name: p.read_text().splitlines()[:6] for p in sorted(Path("out").glob("*.csv"))},
        "report": _visible(Path("out/report.html").read_text()),
    }


def _visible(page: str) -> list[str]:
    """The words of a page."""
    bare = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in re.sub(r"<[^>]*>", "\n", bare).splitlines())
    return [line for line in lines if line]


# The command line.


def run(*arguments: str) -> dict[str, object]:
    """The exit code and both outputs of ``python -m sfumato``, in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err), ExitStack() as stack:
        stack.callback(setattr, sys, "argv", before)
        sys.argv = ["sfumato", *arguments]
        try:
            runpy.run_module("sfumato", run_name="__main__")
        except SystemExit as left:
            code = left.code
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


COMMAND = re.compile(r"^│ ([a-z]+)  +\S")


def of_help() -> dict[str, list[str]]:
    """``--help`` of every command that ``--help`` names, and what comes without arguments."""
    out: dict[str, list[str]] = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop(0)
        lines = [line.rstrip() for line in str(run(*words, "--help")["out"]).splitlines()]
        out[" ".join(["sfumato", *words])] = lines
        listed = lines[next((i for i, t in enumerate(lines) if "Commands" in t), len(lines)) :]
        waiting += [(*words, found[1]) for found in map(COMMAND.match, listed) if found]
    return out


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("plan", "release.toml", "--quiet"),
    ("plan", "release.toml", "--json"),
    ("plan", "release.toml", "--json", "--mechanism", "gaussian-tree"),
    ("plan", "release.toml", "--json", "--error", "5", "--records", "400"),
    ("plan", "queries.toml", "--json", "--all"),
    ("plan", "adaptive.toml", "--json"),
    ("compare", "small.toml", "--json", "--rows", "400"),
    ("compare", "small.toml", "--quiet"),
    ("draft", "people.csv"),
    ("draft", "people.csv", "--json"),
    ("release", "release.toml", "--json", "--yes", "--csv"),
    ("release", "release.toml", "--json", "--yes"),
    ("release", "release.toml", "--yes", "--quiet"),
    ("release", "queries.toml", "--json", "--no-ledger", "--out", "queries", "--yes"),
    ("release", "adaptive.toml", "--json", "--yes", "--out", "adaptive"),
    ("release", "release.toml", "--json", "--yes", "--key", "other", "--mechanism", "laplace"),
    ("ask", "release.toml", *QUESTIONS, "--json", "--dummy"),
    ("ask", "release.toml", QUESTIONS[0], BY_SEX, "--json", "--yes"),
    ("ask", "release.toml", QUESTIONS[0], "--json", "--estimate"),
    ("ask", "release.toml", QUESTIONS[0], "--yes"),
    ("ledger", "show", "people.ledger"),
    ("ledger", "show", "people.ledger", "--json"),
    ("ledger", "verify", "people.ledger"),
    ("ledger", "verify", "people.ledger", "--json"),
    ("ledger", "raise", "people.ledger", "--epsilon", "4", "--delta", "1e-9", "--reason", "more"),
    ("ledger", "freeze", "people.ledger", "--reason", "audit of May"),
    ("release", "release.toml", "--yes", "--key", "third", "--json"),
    ("release", "release.toml", "--yes", "--json"),
    ("ledger", "unfreeze", "people.ledger", "--reason", "done"),
    ("ledger", "show", "people.ledger", "--json"),
    ("ledger", "create", "new.ledger", "--table", "people.csv", "--epsilon", "2", "--json"),
    ("ledger", "create", "new.ledger", "--table", "people.csv", "--epsilon", "2"),
    ("serve", "served/server.toml", "--check"),
    ("serve", "served/server.toml", "--check", "--json"),
    ("plan", "missing.toml"),
    ("plan", "release.toml", "--mechanism", "magic"),
    ("release", "release.toml", "--key", "fourth"),
    ("ask", "release.toml", "SELECT age FROM data", "--yes"),
    ("draft", "missing.csv"),
    ("ledger", "show", "missing.ledger"),
    ("nonsense",),
    ("select", "release.toml", "--top", "2", "--estimate"),
    ("select", "release.toml", "--json", "--counts", "--no-ledger", "--yes"),
)


def of_commands() -> dict[str, object]:
    """What commands print about a small table, one after the other in one folder."""
    key_noise("golden commands")
    out: dict[str, object] = {}
    with _folder() as folder:
        write_people(folder)
        write_served(folder / "served")
        for number, arguments in enumerate(COMMANDS, start=1):
            ran = run(*arguments)
            shown = dict(ran)
            if "--json" in arguments and ran["code"] == 0:
                shown["out"] = json.loads(str(ran["out"]))
            else:
                shown["out"] = [line.rstrip() for line in str(ran["out"]).splitlines()]
            shown["err"] = [line.rstrip() for line in str(ran["err"]).splitlines()]
            out[f"{number} {' '.join(arguments)}"] = plain(shown, {str(folder): "FOLDER"})
        out["files"] = sorted(
            str(p.relative_to(folder)) for p in folder.rglob("*") if "ledger" not in p.name
        )
    return out


# The server.

SESSION = CONFIG.replace(
    "[datasets.others]",
    "[datasets.people.session]\nepsilon = 2\nquestions = 100\nupdates = 8\n\n[datasets.others]",
)


def of_openapi() -> object:
    """The OpenAPI document."""
    with _folder() as folder, served(write_served(folder / "served")) as client:
        return client.get("/openapi.json", headers=bearer(CORA)).json()


def of_server() -> object:
    """Replies of every route, and the entries of the ledger behind them."""
    key_noise("golden server")
    about = "/datasets/people"
    count = {"sql": "SELECT COUNT(*) FROM data WHERE age >= 5"}
    groups = {"sql": "SELECT sex, COUNT(*) FROM data GROUP BY sex"}
    keyed = {"Idempotency-Key": "mine"}
    calls: list[tuple[str, str, str, object, dict[str, str]]] = [
        ("GET", "/health", "", None, {}),
        ("GET", "/ready", "", None, {}),
        ("GET", "/datasets", ADA, None, {}),
        ("GET", "/datasets", "", None, {}),
        ("GET", f"{about}/schema", ADA, None, {}),
        ("POST", f"{about}/plan", ADA, asked(1.0), {}),
        ("POST", f"{about}/plan", ADA, asked(1.0, objective="max", mechanism="laplace"), {}),
        ("POST", f"{about}/release", ADA, asked(0.5), {}),
        ("POST", f"{about}/release", CORA, asked(0.5, project=False), {}),
        ("POST", f"{about}/release", ADA, asked(0.25), keyed),
        ("POST", f"{about}/release", ADA, asked(0.3), keyed),
        ("POST", f"{about}/release", ADA, asked(50.0), {}),
        ("POST", f"{about}/release", ADA, {"workload": [{"marginals": 9}]}, {}),
        ("POST", f"{about}/ask", ADA, count, {}),
        ("POST", f"{about}/ask", CORA, groups, {}),
        ("POST", f"{about}/estimate", ADA, count, {}),
        ("POST", "/datasets/nobody/ask", ADA, count, {}),
        ("GET", f"{about}/ledger", ADA, None, {}),
        ("GET", f"{about}/ledger", CORA, None, {}),
        ("POST", f"{about}/freeze", CORA, {"reason": "audit"}, {}),
        ("POST", f"{about}/release", ADA, asked(0.125), {}),
        ("POST", f"{about}/unfreeze", CORA, {"reason": "done"}, {}),
        ("POST", f"{about}/freeze", ADA, {"reason": "mine"}, {}),
    ]
    out: dict[str, object] = {}
    with _folder() as folder:
        with served(write_served(folder / "served", SESSION)) as client:
            for number, (method, path, token, body, more) in enumerate(calls, start=1):
                headers = {**(bearer(token) if token else {}), **more}
                reply = client.request(method, path, headers=headers, json=body)
                title = f"{number} {method} {path} {token}".strip()
                shown = {"status": reply.status_code, "body": reply.json()}
                out[title] = plain(shown, {str(folder): "FOLDER"})
        out["entries"] = _entries(sf.Ledger.open(folder / "served/people.ledger"))
    return out


# What is loaded.

LOADED = """
import sys
bare = set(sys.modules)
{code}
names = {{name.partition(".")[0] for name in set(sys.modules) - bare}}
found = []
for name in sorted(names):
    where = getattr(sys.modules.get(name), "__file__", None) or ""
    if "site-packages" in where or "dist-packages" in where:
        found.append(name)
print(found, file=sys.stderr)
"""
HELP = """
import runpy
sys.argv = ["sfumato", "--help"]
try:
    runpy.run_module("sfumato", run_name="__main__")
except SystemExit:
    pass
"""


def of_imports() -> dict[str, list[str]]:
    """The packages of others that are loaded before anything is asked for."""
    out = {}
    for name, code in (("import sfumato", "import sfumato"), ("sfumato --help", HELP)):
        command = [sys.executable, "-c", LOADED.format(code=code)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stderr.strip().splitlines()[-1].replace("'", '"'))
        out[name] = [n for n in found if n != "sfumato" and not n.startswith("_")]
    return out
