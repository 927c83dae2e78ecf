# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import getpass
import json
import socket
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError
from sfumato.ledger.entries import Entry
from sfumato.measurement import Measured, Measurement
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.release.provenance import cost_in_words, guarantee, provenance_json
from sfumato.release.release import Release
from sfumato.vault.mechanisms.measure import add_noise
from tests.shared.made_releases import measured, people, planned, released, some_counts
from tests.shared.words import SeededWords


def work():
    return sf.marginals(people(), 1)


def entry(owner: str = "host boot ns 1 2") -> Entry:
    return Entry(
        sequence=7,
        time="2026-01-02T03:04:05+00:00",
        key="k" * 64,
        request="{}",
        cost=Cost.pure(Fraction(1, 2)),
        owner=owner,
        hash="h" * 64,
        state="answered",
        answer_sha256="a" * 64,
    )


def test_the_record_states_what_was_promised_and_how_noise_was_drawn():
    release = released(work(), some_counts(people()))
    record = json.loads(provenance_json(release.provenance))
    forecast = release.forecast
    assert record["schema"] == "sfumato provenance 1"
    assert record["budget"] == {"epsilon": "1", "delta": "1/1000000000"}
    assert record["neighbours"] == "add-remove"
    assert record["domain_sha256"] == people().digest()
    assert record["workload_sha256"] == work().digest()
    assert Cost.from_json(record["cost"]) == forecast.cost
    assert record["ledger"] is None
    assert [g["rmse"] for g in record["forecast"]["groups"]] == [g.rmse for g in forecast.groups]
    for block, law in zip(record["noise"], forecast.noise, strict=True):
        power = int(block["grid"].removeprefix("2^"))
        assert block["scale"] == law.scale == block["scale_in_grid_steps"] * 2.0**power


def test_a_record_of_many_groups_is_cut_and_says_where_the_rest_is(tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    domain = Domain({f"a{i:02d}": 2 for i in range(46)})
    counts = np.zeros((2,) * 2, dtype=np.int64)
    forecast = planned(sf.marginals(domain, 2), "gaussian-groups")
    parts = [
        Measurement(add_noise(counts.reshape(-1), block.term, law, SeededWords(1)), law)
        for block, law in zip(forecast.strategy.blocks, forecast.noise, strict=True)
    ]
    release = Release.of(forecast, Measured(tuple(parts), None), project=False)
    record = json.loads(provenance_json(release.provenance))
    assert record["schema"] == "sfumato provenance 2"
    assert record["cut"]["groups"] == len(forecast.groups) == 1035
    assert len(record["noise"]) == len(record["forecast"]["groups"]) == record["cut"]["listed"]
    assert sum(law["blocks"] for law in record["cut"]["laws"]) == len(forecast.noise)
    paths = release.save(tmp_path)
    groups = pd.read_parquet(paths["groups"])
    assert groups["rmse"].tolist() == [g.rmse for g in forecast.groups]
    assert len(pd.read_parquet(paths["blocks"])) == len(forecast.noise)


def test_the_record_of_equal_plans_does_not_depend_on_the_data():
    """Only the time may differ: no count is in it.

    How far shrinkage went is a function of the noisy answers, which are public; it is left out.
    """
    one, two = (some_counts(people(), rows=n, seed=n) for n in (10, 104_729))
    a, b = (released(work(), n, project="nearest").provenance for n in (one, two))
    assert {k: v for k, v in a.items() if k != "created"} == (
        {k: v for k, v in b.items() if k != "created"}
    )
    assert "104729" not in provenance_json(b)


def test_the_record_names_neither_machine_nor_user_nor_paths():
    forecast = planned(work())
    seen = measured(forecast, some_counts(people()), SeededWords(1))
    text = provenance_json(
        Release.of(forecast, seen, entry=entry(f"{socket.gethostname()} boot")).provenance
    )
    assert json.loads(text)["ledger"]["sequence"] == 7
    assert "owner" not in text
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd()), getpass.getuser()):
        assert f'"{private}' not in text
        assert f"{private} boot" not in text


def test_the_caller_adds_facts_but_cannot_restate_the_guarantee():
    forecast = planned(work())
    seen = measured(forecast, some_counts(people()), SeededWords(1))
    given = {"created": "2026-01-01T00:00:00+00:00", "title": "x", "guarantee": "none"}
    record = Release.of(forecast, seen, provenance=given).provenance
    assert record["created"] == "2026-01-01T00:00:00+00:00"
    assert record["title"] == "x"
    assert record["guarantee"] == guarantee(forecast)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "If one row is added or removed, .* by no more than .1, 1e-9.-differential privacy"),
        ({"neighbours": "replace-one"}, "If one row is replaced by another, "),
        ({"budget": Budget(epsilon="0.5")}, "more than 0.5-differential privacy allows"),
        ({"budget": Budget(rho="0.125")}, "0.125-zero-concentrated differential privacy"),
        ({"budget": Budget(mu=1)}, "more than 1-Gaussian differential privacy allows"),
        (
            {"unit": PrivacyUnit("person", 5)},
            "all rows of one 'person' are added or removed .at most 5 are counted.",
        ),
    ],
)
def test_the_guarantee_is_one_true_sentence(options, sentence):
    import re

    text = guarantee(planned(work(), **options))
    assert re.search(sentence, text)
    assert text.endswith(".")
    assert text.count(". ") == 0


@pytest.mark.parametrize(
    ("mechanism", "budget", "words"),
    [
        ("gaussian", Budget(epsilon=1, delta=1e-9), r"epsilon = (0\.9999\d*|1) at delta = 1e-9"),
        ("laplace", Budget(epsilon=1, delta=1e-9), r"epsilon = (0\.9999\d*|1)"),
        ("gaussian", Budget(rho=1), r"rho = \S+"),
    ],
)
def test_the_cost_is_told_in_the_currency_of_the_budget(mechanism, budget, words):
    import re

    forecast = planned(work(), mechanism, budget=budget)
    assert re.fullmatch(words, cost_in_words(forecast.cost, forecast.budget))


def test_what_json_cannot_hold_is_refused():
    forecast = planned(work())
    seen = measured(forecast, some_counts(people()), SeededWords(1))
    for wrong in (np.arange(3), float("nan")):
        release = Release.of(forecast, seen, provenance={"title": wrong})
        with pytest.raises(SfumatoError, match="cannot be written as JSON"):
            provenance_json(release.provenance)
