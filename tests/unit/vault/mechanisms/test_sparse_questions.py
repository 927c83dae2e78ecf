# SPDX-License-Identifier: Apache-2.0
"""Exact answers to single questions: what moves them, how they are held, what may leave."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.run.public_records import public_records
from sfumato.vault import count
from sfumato.vault.count import Sensitive, public_cells
from sfumato.vault.mechanisms import sparse
from sfumato.vault.mechanisms.sparse import ExactQuestions, answer, answer_shift, moved_by_one
from sfumato.vault.tables import open_table
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.question import questions_of
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 4, "b": 3})
ROWS = pd.DataFrame({"a": [3, 0, 0, 1, 3], "b": [2, 1, 1, 0, 0]})
WORK = sf.product(DOMAIN, {"a": [[1, 1, 0, 0], [-2, 0, 3, 0.5]]}) | sf.marginals(DOMAIN, 2)
QUESTIONS = questions_of(WORK)
TWO_ROWS = PrivacyUnit("a", 2)


def held(neighbours="add-remove", unit=None, domain=DOMAIN):
    return ExactQuestions(open_table(ROWS), domain, neighbours, unit)


def test_one_person_moves_an_answer_by_its_coefficients():
    plain, mixed = QUESTIONS[:2]  # coefficients 0 and 1; from -2 to 3, in halves
    assert (mixed.low, mixed.high, mixed.bits) == (-4, 6, 1)
    assert [moved_by_one(q, "add-remove") for q in (plain, mixed)] == [1, 6]
    assert [moved_by_one(q, "replace-one") for q in (plain, mixed)] == [1, 10]
    assert [moved_by_one(q, "replace-one", TWO_ROWS) for q in (plain, mixed)] == [2, 20]
    nothing = questions_of(sf.product(DOMAIN, {"a": [[0, 0, 0, 0]]}))[0]
    assert moved_by_one(nothing, "replace-one") == 1


def test_steps_are_divided_until_they_are_fine_enough():
    assert (answer_shift(1), answer_shift(LIMITS.fine_steps - 1)) == (8, 8)
    assert (answer_shift(LIMITS.fine_steps), answer_shift(LIMITS.fine_steps + 1)) == (0, 0)


@pytest.mark.parametrize("dense", [2**22, 0])
def test_scores_are_distances_in_parts_of_what_one_person_moves(dense, monkeypatch):
    """From tables held cell by cell, and from the cells that there are."""
    monkeypatch.setattr(sparse, "LIMITS", replace(LIMITS, cells_dense=dense))
    plain, mixed = QUESTIONS[:2]
    # a = 0 twice, 1 once: 3; -2 twice, 1/2 twice: -3, or -6 steps.
    exact = [3 << 8, -6 << 8]
    box = held().scores([plain, mixed], [0, 0])
    assert box.reveal() == [exact[0], -exact[1] // 6]
    near = held("replace-one").scores([plain, mixed], [exact[0] + 5, exact[1] - 25])
    assert near.reveal() == [5, 2]
    cells = held().scores(QUESTIONS[2:], [0] * 12).reveal()
    counts = np.zeros((4, 3), int)
    np.add.at(counts, (ROWS["a"], ROWS["b"]), 256)
    assert cells == counts.ravel().tolist()


@pytest.mark.parametrize(("neighbours", "moved"), [("add-remove", 6), ("replace-one", 10)])
def test_noise_is_stretched_to_what_one_person_moves(neighbours, moved):
    law = NoiseLaw("gaussian", Fraction(1000))
    found = held(neighbours).noisy(QUESTIONS[1], law, SeededWords(1))
    stretched = NoiseLaw("gaussian", Fraction(1000 * moved))
    assert found == answer(Sensitive(-6 << 8), stretched, SeededWords(1))


def test_noise_of_fine_steps_is_not_divided_further():
    work = sf.product(DOMAIN, {"a": [[LIMITS.fine_steps, 0, 0, 0]]})
    law = NoiseLaw("laplace", Fraction(512))
    found = held().noisy(questions_of(work)[0], law, SeededWords(2))
    stretched = NoiseLaw("laplace", Fraction(2 * LIMITS.fine_steps))
    assert found == answer(Sensitive(2 * LIMITS.fine_steps), stretched, SeededWords(2))


def test_the_number_of_records_leaves_only_where_a_replaced_one_cannot_change_it():
    whole = Domain([Integer(n, 0, 3, outside="clamp", nulls="missing") for n in ("a", "b")])
    assert held("replace-one", domain=whole).records() == 5
    assert held("add-remove", domain=whole).records() is None
    assert held("replace-one", TWO_ROWS, whole).records() is None
    assert held("replace-one").records() is None  # records outside of the domain are dropped


def test_what_was_counted_is_held_and_given_up_when_it_is_too_much(monkeypatch):
    monkeypatch.setattr(sparse, "LIMITS", replace(LIMITS, cells_held=15))
    box = held()
    for names in (("a",), ("a", "b")):
        box.prepare(names)
    assert set(box._held) == {("a", "b")}  # 4 + 12 cells are one too many: begun anew
    monkeypatch.setattr(sparse, "LIMITS", replace(LIMITS, cells_held=16))
    box = held()
    for names in (("a",), ("a", "b")):
        box.prepare(names)
    assert set(box._held) == {("a",), ("a", "b")}
    first = box._held[("a",)]
    box.prepare(("a",))
    assert box._held[("a",)] is first
    box.prepare(("b",))
    assert set(box._held) == {("b",)}


@pytest.mark.parametrize("dense", [2**22, 0])
def test_public_cells_are_listed_in_order(dense, monkeypatch):
    monkeypatch.setattr(count, "LIMITS", replace(LIMITS, cells_dense=dense))
    codes, counts = public_cells(open_table(ROWS), DOMAIN, DOMAIN.names)
    assert (codes.dtype, counts.dtype) == (np.int64, np.float64)
    assert codes.tolist() == [[0, 1], [1, 0], [3, 0], [3, 2]]
    assert counts.tolist() == [2, 1, 1, 1]


def test_public_records_are_those_of_the_asked_attributes():
    found = public_records(ROWS, sf.marginals(DOMAIN, [("b",)]))
    assert (found.attributes, found.codes.tolist()) == (("b",), [[0], [1], [2]])
    assert found.weights.tolist() == [2.0, 2.0, 1.0]
    with pytest.raises(sf.errors.WorkloadError, match="no public record"):
        public_records(pd.DataFrame({"a": [9], "b": [9]}), sf.marginals(DOMAIN, [("b",)]))
    wide = sf.Domain({"a": 2**11, "b": 2**11 + 1})
    with pytest.raises(sf.errors.TooLarge, match="public records are counted in at most"):
        public_records(ROWS, sf.marginals(wide, 2))
