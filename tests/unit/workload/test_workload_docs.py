# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/workloads.md and of this room's docstrings run as they are printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import sfumato as sf
import sfumato.workload
from sfumato.toml import parse_toml
from sfumato.workload.statements.workload_file import workload_from

PAGE = (Path(__file__).parents[3] / "docs" / "workloads.md").read_text("utf-8")
MODULES = [m.name for m in pkgutil.iter_modules(sfumato.workload.__path__)]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run(listed: list[str]) -> tuple[dict[str, object], doctest.DocTestRunner]:
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    for number, text in enumerate(listed):
        title = f"workloads.md, block {number + 1}"
        example = doctest.DocTestParser().get_doctest(text, names, title, None, 0)
        runner.run(example, clear_globs=False)
        names.update(example.globs)
    return names, runner


def test_python_examples_give_what_is_printed() -> None:
    _, runner = run(blocks("python"))
    assert runner.tries > 30
    assert runner.failures == 0


def test_the_toml_example_asks_for_every_kind_that_is_described() -> None:
    names, _ = run(blocks("python")[:1])
    domain = names["domain"]
    assert isinstance(domain, sf.Domain)
    (text,) = blocks("toml")
    file = parse_toml(text)
    assert workload_from(file, domain).terms[-1].name == "COUNT(*) by sex where age < 30"
    entries = file.data["workload"]
    assert isinstance(entries, list)
    described = set(re.findall(r"^\| `(\w+)` \|[^|]*\| `sf", PAGE, re.MULTILINE))
    assert len(described) == 13
    several = {"covariances", "moments"}  # of two columns of numbers; the domain has one
    assert described - several <= {key for entry in entries for key in entry}


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    found = importlib.import_module(f"sfumato.workload.{module}")
    assert doctest.testmod(found).failed == 0
