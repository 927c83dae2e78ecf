# SPDX-License-Identifier: Apache-2.0
"""The mutants are what their rules say, and a sample repeats."""

from __future__ import annotations

import pytest

from tests.mutants.report import interval
from tests.mutants.rules import is_program, mutants_of


def changed(source):
    """Every mutant of a piece of source, as text."""
    data = source.encode()
    return {m.applied_to(data).decode() for m in mutants_of(data) if is_program(m, data)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"(a <= b)", "(a >= b)"}),
        ("a == b", {"(a != b)"}),
        ("a + b", {"(a - b)"}),
        ("a // b", {"(-(-(a) // (b)))"}),
        ("x[a:]", {"x[:]"}),
        ("a and b", {"(a or b)", "((b))", "((a))"}),
        ("not a", {"(a)"}),
        ("max(a)", {"min(a)", "pass"}),
        ("a.ceil()", {"a.floor()", "pass"}),
        ("f(a, k=b)", {"f(a)", "pass"}),
        ("x.y = a", {"pass"}),
        ("x -= a", {"pass", "x += a"}),
        ("raise E('text', 1)", {"pass"}),
        ("with lock: pass", {"with __import__('contextlib').nullcontext(): pass"}),
        ("y = 7", {"y = (8)", "y = (6)"}),
        ("y = 0.5", {"y = 1.0", "y = 0.25"}),
        ("y = 'é'", {"y = ''"}),
        ("def f(): return a", {"def f(): return None"}),
        ("a if b else c", {"a if (not (b)) else c"}),
        ("[a for a in b if c]", {"[a for a in b if (not (c))]"}),
    ],
)
def test_each_rule_writes_what_it_says(source, expected):
    assert changed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Words."""',
        "a: Literal['x'] = b",
        "assert a < b",
        "@lru_cache(maxsize=2)\nclass A: b",
        "f'{1}'",
    ],
)
def test_what_is_no_behaviour_is_left_alone(source):
    assert changed(source) == set()


def test_statements_are_named_by_their_own_lines():
    source = b"x = 1\ndef f(y=2):\n    if (y <\n        3):\n        return y\n"
    lines = {(m.lines, m.on_import) for m in mutants_of(source)}
    assert lines == {((1, 1), True), ((2, 2), True), ((3, 4), False), ((5, 5), False)}


def test_intervals_are_those_of_clopper_and_pearson():
    # 0 of n: 1 - (alpha/2)^(1/n).
    assert interval(0, 10) == (0.0, pytest.approx(1 - 0.025**0.1))
    assert interval(10, 10) == (pytest.approx(0.025**0.1), 1.0)
