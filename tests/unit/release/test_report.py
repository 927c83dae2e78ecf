# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import html.parser
import json
import re

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.release.release_limits import LIMITS
from sfumato.release.report import number, report_html, script_json
from tests.shared.made_releases import people, released, some_counts

ADDRESS = re.compile(r"""(?:src|href|action|data)\s*=\s*["']?\s*(?:[a-z]+:)?//""", re.IGNORECASE)
HOSTILE = ("<script>alert(1)</script>", '"><img src=//evil.example/x>', "a & b", "'quoted'")


class Reader(html.parser.HTMLParser):
    """Collects elements, their attributes and the texts outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "script":
            self.scripts.setdefault(dict(attrs).get("id") or str(len(self.scripts)), "")

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._inside:
            last = list(self.scripts)[-1]
            self.scripts[last] += data
        elif "style" not in self._inside:
            self.texts.append(data)


def without_library(page: str) -> str:
    """The page without the charting library, which is code and names addresses in messages."""
    parts = re.split(r"(<script>.*?</script>)", page, flags=re.DOTALL)
    return "".join(p for p in parts if len(p) < 400_000)


@pytest.fixture(scope="module")
def page():
    domain = people()
    work = (
        sf.marginals(domain, 2)
        | sf.prefixes(domain, "age", by=["sex"])
        | sf.means(domain, "age", by=["sex"])
    )
    return released(work, some_counts(domain)).report()


def test_the_report_loads_nothing_from_anywhere(page):
    seen = Reader(page)
    for tag, attributes in seen.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            address = attributes.get(name)
            assert address is None or address.startswith("#"), (tag, address)
    assert not ADDRESS.search(without_library(page))
    assert "@import" not in page
    assert "url(" not in without_library(page)


def test_a_page_that_loads_a_script_would_be_noticed(page):
    for wrong in ('<script src="https://cdn.example/vega.js">', "<img src=//x.example/i.png>"):
        assert ADDRESS.search(without_library(page.replace("</main>", wrong + "</main>")))


def test_a_policy_forbids_every_connection(page):
    (policy,) = [
        a["content"] for t, a in Reader(page).elements if a.get("http-equiv") and t == "meta"
    ]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "connect-src" not in policy


def test_the_charting_library_is_inside_exactly_once(page):
    large = [s for s in re.findall(r"<script>(.*?)</script>", page, re.DOTALL) if len(s) > 400_000]
    assert len(large) == 1
    assert "vegaEmbed" in large[0]


def test_every_chart_has_its_place_and_its_data(page):
    seen = Reader(page)
    charts = json.loads(seen.scripts["charts"])
    places = [a["data-chart"] for _, a in seen.elements if a.get("class") == "chart"]
    assert places == [str(i) for i in range(len(charts))]
    assert len(charts) == 5  # three tables, a CDF, a mean; not the halves of the mean
    assert all("$schema" not in c for c in charts)
    assert "http" not in json.dumps(charts)


def test_the_report_says_what_was_promised_and_spent(page):
    text = " ".join(Reader(page).texts).replace("\u2011", "-")
    assert "If one row is added or removed" in text
    assert "epsilon = 1,\ndelta = 1e-9" in text
    assert "the number of rows is protected too" in text
    assert "no ledger was used" in text
    assert "holds the true number with probability 0.95" in text
    assert "Known limits" in text


@pytest.mark.parametrize(
    ("neighbours", "words"),
    [
        ("add-remove", "all rows of one person more or less"),
        ("replace-one", "all rows of one person replaced by others"),
    ],
)
def test_neighbours_of_a_privacy_unit_differ_in_all_rows_of_a_person(neighbours, words):
    table = pa.table({"who": [1, 1, 2, 3], "sex": ["a", "b", "a", "b"]})
    work = sf.marginals(Domain([Category("sex", ["a", "b"])]), 1)
    unit = sf.PrivacyUnit("who", 2)
    plan = sf.plan(work, sf.Budget(epsilon=1), neighbours=neighbours, unit=unit)
    texts = "".join(Reader(plan.release(table).report()).texts)
    assert words in texts
    assert "one row" not in texts


def test_texts_of_the_schema_are_never_markup():
    domain = Domain([Category("<i>x</i>", HOSTILE), Category("y", ("u", "v"))])
    work = sf.marginals(domain, 2) | sf.predicates(
        domain, [sf.attribute(domain, "y") == "u"], labels=["<b>bold</b>"]
    )
    page = released(work, np.full((4, 2), 1000)).report()
    seen = Reader(page)
    assert {t for t, _ in seen.elements} <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "dl", "div"),
        *("dt", "dd", "small", "table", "thead", "tbody", "tr", "th", "td", "a", "details"),
        *("summary", "b", "span", "i", "input", "ul", "li", "pre", "script"),
    }
    assert [t for t, _ in seen.elements].count("script") == 3
    assert "<b>bold" not in page
    assert "<i>x</i>" not in page
    assert "evil.example" not in without_library(page).replace(
        "src=//evil.example/x&gt;", ""
    ).replace(
        "src=//evil.example/x>",
        "",  # inside the JSON of a chart, where < is \\u003c
    )
    texts = seen.texts
    for label in HOSTILE:
        assert label in texts


def test_json_in_the_page_cannot_close_its_script():
    assert "<" not in script_json({"a": "</script><script>"})
    assert json.loads(script_json({"a": "</script>"})) == {"a": "</script>"}


def test_many_groups_get_a_dozen_charts_and_short_tables():
    domain = Domain({f"a{i:02d}": 4 for i in range(14)} | {"age": 60})
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age")
    page = released(work, Sparse(domain), "gaussian").report()
    seen = Reader(page)
    assert len(json.loads(seen.scripts["charts"])) == LIMITS.charts_shown
    assert [a.get("data-name") for t, a in seen.elements if t == "details"][-2] == "prefix age"
    # The CDF is the last of 106 groups and still among the pictures.
    last = next(i for i, (_, a) in enumerate(seen.elements) if a.get("data-name") == "prefix age")
    assert any(a.get("class") == "chart" for _, a in seen.elements[last : last + 7])
    assert sum(t == "tr" for t, _ in seen.elements) < 106 * 60
    assert any(a.get("id") == "find" for _, a in seen.elements)
    assert len(page) < 3_000_000


def test_a_report_of_many_groups_stays_below_five_megabytes(monkeypatch):
    """4,005 groups; before, every group had a table and the page grew with the release."""
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    domain = Domain({f"a{i:02d}": 7 for i in range(90)})
    release = released(sf.marginals(domain, 2), Sparse(domain), "factorization", project=False)
    page = release.report()
    seen = Reader(page)
    assert len(page.encode()) < LIMITS.page_bytes - 1_000_000  # what the charting library may take
    listed = json.loads(seen.scripts["groups"])
    sections = [a["data-name"] for t, a in seen.elements if t == "details" and "data-name" in a]
    assert len(sections) + len(listed) == 4005
    assert not set(sections) & {name for name, _ in listed}
    assert "answers.parquet" in " ".join(seen.texts)


def test_a_report_with_endless_labels_stays_below_five_megabytes(monkeypatch):
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    names = [f"{'x' * 5_000}{i}" for i in range(40)]
    domain = Domain([Category("a", names), Category("b", names)])
    work = sf.marginals(domain, 1) | sf.marginals(domain, 2)
    release = released(work, some_counts(domain, 100), project=False)
    assert len(release.report().encode()) < LIMITS.page_bytes - 1_000_000


def test_charts_with_more_data_than_a_page_holds_are_left_out(monkeypatch):
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    domain = Domain({f"a{i}": 9000 for i in range(12)})
    work = sf.prefixes(domain, "a0")
    for i in range(1, 12):
        work = work | sf.prefixes(domain, f"a{i}")
    page = released(work, Sparse(domain), "gaussian", project=False).report()
    assert 0 < len(json.loads(Reader(page).scripts["charts"])) < 12
    assert len(page.encode()) < LIMITS.page_bytes - 1_000_000


class Sparse:
    """Counts of a domain too large to build: nobody anywhere."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def sum(self, axis=(), dtype=np.int64):
        return np.zeros([n for i, n in enumerate(self.domain.shape) if i not in axis], dtype=dtype)

    dtype = np.int64


def test_numbers_are_shown_to_the_digits_that_mean_something():
    assert number(1234.5678, 15.0) == "1,235"
    assert number(-0.4, 15.0) == "0"
    assert number(-12.34, 0.5) == "&minus;12.34"
    assert number(float("nan"), 1.0) == "&ndash;"
    assert number(float("inf"), 1.0) == "&infin;"
    assert number(2.5, float("nan")) == "2.500"


def test_the_typical_error_of_sums_beside_counts_is_in_counts(monkeypatch):
    """Sums err in thousands; by their weights they count in units of their greatest value."""
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    domain = people()
    work = sf.marginals(domain, 1) | sf.means(domain, "age", by=["sex"])
    release = released(work, some_counts(domain))
    text = " ".join(Reader(report_html(release, 0.95)).texts)
    forecast = release.forecast
    assert f"Typical error {forecast.weighted_rmse:,.4g} root mean square by the weights" in text
    assert forecast.weighted_rmse < forecast.rmse


def test_shares_stand_beside_counts_when_they_are_asked_for(monkeypatch):
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    domain = Domain([Category("share", ("a", "b"))], records="all-inside")
    work = sf.marginals(domain, 1)
    release = released(work, np.array([30, 170]), neighbours="replace-one")
    plain, page = release.report(), release.report(shares=True)
    assert "Shares of" not in plain
    assert "<th>share</th>" not in plain
    assert "Shares of the 200 public records" in page
    assert "2/n = 0.01 " in page
    assert "shares of the 200 public records: root mean square" in page
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page[page.index('id="g0"') :])
    names = ["share (attribute)", "value", "standard error", "low", "high"]
    assert heads == [*names, "share", "share low", "share high"]
    row = re.findall(r"<td>([^<]*)</td>", page[page.index('id="g0"') :])[:7]
    assert float(row[4]) == pytest.approx(float(row[0]) / 200, abs=1e-3)


def test_a_report_says_for_how_many_records_the_budget_was_divided() -> None:
    domain = sf.Domain({"a": 4, "b": 5, "c": 6})
    plan = sf.plan(sf.marginals(domain, 2), sf.Budget(mu=0.05), records=50, cache=False)
    rows = {"a": [0, 1, 2, 3], "b": [1, 1, 1, 2], "c": [0, 0, 5, 5]}
    divided, planned = "divided between tables for about 50 records", "Known before anything"
    said = report_html(plan.release(pa.table(rows)), level=0.95)
    assert divided in said
    assert planned not in said
    said = report_html(plan.release(pa.table(rows), project=False), level=0.95)
    assert divided not in said
    assert planned in said
