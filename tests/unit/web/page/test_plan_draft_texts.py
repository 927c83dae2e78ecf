# SPDX-License-Identifier: Apache-2.0
"""Drafts as requests, as addresses and as they are kept; what may be spent at most."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode
from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import WorkloadError
from sfumato.ledger.account import Remaining
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.page.plan_draft import (
    DELTAS,
    EPSILONS,
    LEVELS,
    PROJECTIONS,
    Draft,
    code_of,
    draft_of_code,
    forget_draft,
    keep_draft,
    kept_drafts,
    most_of,
    place_of_epsilon,
)
from sfumato_web.server.models import ReleaseAsked
from sfumato_web.server.problems import Problem
from tests.page.visiting import server_of, visit


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with server_of(tmp_path_factory.mktemp("drafts") / "museum") as found:
        yield found


def a_draft(**more) -> Draft:
    return Draft("museum", [{"marginals": 1}], **more)


def test_what_is_not_chosen_is_not_said():
    """So that requests of before keep their keys."""
    assert a_draft().request() == {
        "workload": [{"marginals": 1}],
        "budget": {"epsilon": "1", "delta": "1e-9"},
    }


@pytest.mark.parametrize("project", PROJECTIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_draft_comes_back_from_its_address(server, project, level):
    draft = a_draft(project=project, level=level, mechanism="gaussian", objective="max")
    draft.spend("0.1234567")
    found = draft_of_code(visit(server, "ada"), code_of(draft))
    assert {f.name: getattr(found, f.name) for f in fields(Draft)} == {
        f.name: getattr(draft, f.name) for f in fields(Draft)
    }
    assert ReleaseAsked.model_validate(found.request()).level == float(level)


@given(st.sampled_from([*EPSILONS, "0.015", "0.001", "9.99", "77", "0.3333333"]))
def test_an_epsilon_stands_at_the_last_value_that_is_not_larger(epsilon):
    draft = a_draft()
    draft.spend(epsilon)
    assert Fraction(draft.spends) == Fraction(epsilon)
    assert float(EPSILONS[draft.epsilon]) <= max(float(epsilon), 0.01)
    assert draft.epsilon == max(0, int(place_of_epsilon(float(epsilon))))


def _code(text: bytes) -> str:
    return urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


@pytest.mark.parametrize(
    "code",
    [
        "x",
        "%%%",
        "ä",
        "a" * 4_000,
        _code(b""),
        _code(b"[1]"),
        _code(b"[" * 50_000),
        _code(b"0" * 10**7),
        _code(b'{"table": "museum"}'),
        _code(b'{"table": "museum", "people": 1e999, "workload": [{}], "budget": {"epsilon": 1}}'),
        _code(b'{"table": "museum", "people": 9, "workload": [{}], "budget": {"rho": 1}}'),
        _code(
            b'{"table":"museum","people":9,"workload":[{"marginals":1}],"mechanism":"best",'
            b'"budget":{"epsilon":"1"}}'
        ),
        _code(
            b'{"table":"museum","people":9,"workload":[{"marginals":1}],"level":0.5,'
            b'"budget":{"epsilon":"1"}}'
        ),
        _code(
            b'{"table":"museum","people":9,"workload":[{"marginals":1}],"budget":{"epsilon":"-1"}}'
        ),
        _code(
            b'{"table":"museum","people":9,"workload":[{"marginals":1}],"budget":{"epsilon":"1/0"}}'
        ),
    ],
)
def test_an_address_that_holds_no_draft_is_refused_in_words(server, code):
    with pytest.raises(Problem, match="holds no draft"):
        draft_of_code(visit(server, "ada"), code)


def test_a_draft_of_a_table_that_is_not_theirs_is_refused(server):
    with pytest.raises(Problem, match="no dataset of this name"):
        draft_of_code(visit(server, "bob"), code_of(a_draft()))


def test_there_is_a_draft_of_something_only():
    for nothing in (Draft("museum"), Draft("", [{"marginals": 1}])):
        with pytest.raises(WorkloadError, match="there is a draft"):
            code_of(nothing)


def test_drafts_are_kept_by_name_each_their_own(server):
    ada, bob = visit(server, "ada"), visit(server, "bob")
    keep_draft(ada, a_draft(), " weekly ")
    keep_draft(ada, a_draft(), "weekly")  # the same once more is no fault
    other = a_draft(objective="max")
    with pytest.raises(WorkloadError, match="another draft is called 'weekly'"):
        keep_draft(ada, other, "weekly")
    for name in ("", "  ", "two\nlines", "x" * (LIMITS.draft_name + 1)):
        with pytest.raises(WorkloadError, match="name the draft"):
            keep_draft(ada, other, name)
    (kept,) = kept_drafts(ada)
    assert (kept.name, kept.table) == ("weekly", "museum")
    assert kept_drafts(bob) == []
    forget_draft(ada, kept)
    assert kept_drafts(ada) == []
    keep_draft(ada, other, "weekly")
    assert draft_of_code(ada, kept_drafts(ada)[0].code).objective == "max"


def test_the_most_is_said_by_noise():
    left = Remaining(Fraction(1, 2), 0.1, Fraction(1, 3), Fraction(1, 10**9))
    most, words = most_of(left, "1e-9")
    assert [w.split()[0] for w in words] == ["Gaussian", "pure"]
    assert Fraction(most) == max(left.epsilon("gaussian"), left.epsilon("pure"))
    assert most_of(left, "0")[1] == [f"pure noise up to epsilon {most_of(left, '0')[0]}"]
    assert Fraction(most_of(left, "1e-9", "gaussian")[0]) == left.epsilon("gaussian")
    assert most_of(left, "1e-9", "laplace") == most_of(left, "0")
    assert most_of(Remaining(Fraction(0), None, Fraction(0)), "1e-9") == ("", [])
    assert most_of(left, DELTAS[0], "gaussian") == ("", [])
