# SPDX-License-Identifier: Apache-2.0
"""The rows kept of a privacy unit are a uniformly random subset of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import chisquare

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.vault import encode
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import read_records
from sfumato.vault.tables import open_table
from tests.shared.words import SeededWords

ALPHA = 1e-6
UNITS = 4000


def p_value(seed: str) -> float:
    """Each unit has rows a, a, a, b, c and keeps two: of the ten pairs, three are a a, three a b,
    three a c and one b c. The p-value of a chi-square test on these four."""
    person = np.repeat(np.arange(UNITS), 5)
    rows = pd.DataFrame({"person": person, "kind": np.tile([0, 0, 0, 1, 2], UNITS)})
    domain, unit = Domain({"person": UNITS, "kind": 3}), PrivacyUnit("person", 2)
    table = open_table(rows.sample(frac=1, random_state=0))
    read_records(table, domain, domain.names, unit, SeededWords(seed))
    kept = count_marginals(table, domain, [domain.names], unit).reveal(domain.names)
    assert (kept.sum(axis=1) == 2).all()
    pairs = [kept[:, 0] == 2, (kept[:, :2] == 1).all(axis=1), (kept[:, ::2] == 1).all(axis=1)]
    found = [int(pair.sum()) for pair in pairs]
    found.append(UNITS - sum(found))
    return float(chisquare(found, UNITS * np.array([0.3, 0.3, 0.3, 0.1])).pvalue)


def test_every_pair_of_rows_is_equally_likely():
    assert min(p_value("a"), p_value("b")) > ALPHA


def test_a_hash_that_does_not_number_equal_rows_is_rejected(monkeypatch):
    """Equal rows would then stand together, and be drawn too often or too seldom in pairs."""
    without(monkeypatch, "twin")
    assert p_value("a") < ALPHA


def test_a_hash_without_the_unit_is_rejected(monkeypatch):
    """Every unit would keep the same kinds of rows."""
    without(monkeypatch, "owner")
    assert p_value("a") < ALPHA


def without(monkeypatch, left_out: str) -> None:
    whole = encode.hashed_parts

    def hashed_parts(codes: Sequence[str]) -> list[str]:
        # The unit itself is an attribute here, so its codes (column c0) go with it.
        gone = {left_out, "c0"} if left_out == "owner" else {left_out}
        return [part for part in whole(codes) if part not in gone]

    monkeypatch.setattr(encode, "hashed_parts", hashed_parts)
