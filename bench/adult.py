# SPDX-License-Identifier: Apache-2.0
"""The Adult table as benchmarks of private release code it: 14 attributes, 6.4e17 cells.

Records are those that come with sfumato (Becker, Kohavi 1996, UCI Machine Learning Repository,
CC BY 4.0). The coding is the one of the peers' figures: codes of categories in the order of the
code book, missing last, and a hundred equal bins for weights, gains and losses. Its bins are fixed
numbers, but nobody would choose them for a real release: ``examples/adult/adult.toml`` is better.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np
import pandas as pd

import sfumato as sf
from bench.cases import ADULT

__all__ = ["YES_NO", "coded", "domain", "yes_no"]

COLUMNS = (
    "age", "workclass", "fnlwgt", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
FIRST = {"age": 16, "education-num": 1, "hours-per-week": 1}
BINS = {"fnlwgt": (10_000, 14_900), "capital-gain": (0, 1_000), "capital-loss": (0, 50)}
GOVERNMENT = ["Federal-gov", "Local-gov", "State-gov"]
SELF_EMPLOYED = ["Self-emp-not-inc", "Self-emp-inc"]
OFFICE = ["Exec-managerial", "Prof-specialty", "Adm-clerical", "Tech-support", "Sales"]
YES_NO = (
    "sex is Male", "income is >50K", "age >= 35", "marital-status is Married-civ-spouse",
    "education-num >= 10", "race is White", "hours-per-week >= 41", "workclass in government",
    "occupation in office", "native-country is United-States", "capital-gain >= 1",
    "capital-loss >= 1", "age >= 25", "age >= 50", "education-num >= 13", "hours-per-week >= 35",
    "workclass in self-employed", "relationship is Own-child", "marital-status is Never-married",
    "race is Black",
)  # fmt: skip
GROUPS = {"government": GOVERNMENT, "self-employed": SELF_EMPLOYED, "office": OFFICE}


def domain() -> sf.Domain:
    """Fourteen attributes of the sizes that the peers' figures are for."""
    return sf.Domain(dict(zip(COLUMNS, ADULT, strict=True)))


@cache
def coded() -> pd.DataFrame:
    """All 48,842 records as codes of ``domain()``."""
    table = _labelled()
    known = _code_book()
    return pd.DataFrame({name: _codes(table[name], known) for name in COLUMNS})


def yes_no(attributes: int, records: int, seed: int = 0) -> pd.DataFrame:
    """The first so many yes/no attributes of that many records, drawn without replacement."""
    table = _labelled()
    chosen = np.random.default_rng(seed).permutation(len(table))[:records]
    answers = {f"x{i}": _answers(table, text) for i, text in enumerate(YES_NO[:attributes])}
    return pd.DataFrame(answers).iloc[chosen].reset_index(drop=True)


def _codes(column: pd.Series, known: dict[str, list[str]]) -> np.ndarray:
    name = str(column.name)
    if name in known:
        values = known[name]
        found = pd.Categorical(column, values).codes.astype(np.int64)
        return np.where(found < 0, len(values), found)
    numbers = column.to_numpy().astype(np.int64)
    if name in FIRST:
        return numbers - FIRST[name]
    low, width = BINS[name]
    return np.maximum(-((low - numbers) // width) - 1, 0)  # bins are closed above


def _answers(table: pd.DataFrame, text: str) -> np.ndarray:
    name, kind, value = text.split(maxsplit=2)
    if kind == ">=":
        yes = table[name] >= int(value)
    else:
        yes = table[name].isin(GROUPS[value] if kind == "in" else [value])
    return yes.to_numpy().astype(np.int64)


@cache
def _labelled() -> pd.DataFrame:
    with as_file(files("sfumato") / "data" / "adult.parquet") as path:
        return pd.read_parquet(path)


def _code_book() -> dict[str, list[str]]:
    with as_file(files("sfumato") / "data" / "adult.toml") as path:
        known = sf.Domain.from_toml(path)
    listed = {a.name: [str(v) for v in getattr(a, "values", ())] for a in known}
    return {name: listed[name] for name in COLUMNS if listed.get(name)}
