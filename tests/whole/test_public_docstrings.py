# SPDX-License-Identifier: Apache-2.0
"""Every public name says what it takes, returns and raises: Google style, every parameter."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module

import pytest

import sfumato as sf

TITLES = "Args|Returns|Raises|Attributes|Yields"
SECTIONS = re.compile(rf"^({TITLES}):\n((?:(?:    .*)?\n?)*)", re.MULTILINE)
NAMED = re.compile(r"^    \*{0,2}(\w+): \S", re.MULTILINE)
# Its methods are those of every query set, and documented by their protocol.
BY_PROTOCOL = {"Tree"}


def sections(function: object) -> dict[str, str]:
    """The sections of a docstring, by title."""
    return dict(SECTIONS.findall(inspect.getdoc(function) or ""))


def parameters(function: Callable[..., object]) -> list[str]:
    names = inspect.signature(function).parameters
    return [n for n in names if n not in ("self", "cls") and not n.startswith("_")]


def faults(function: Callable[..., object], *, returns: bool = True) -> list[str]:
    """What the docstring of a function or of a class lacks."""
    has = sections(function)
    said, wanted = NAMED.findall(has.get("Args", "")), parameters(function)
    out = [] if said == wanted else [f"Args {said} for {wanted}"]
    result = inspect.signature(function).return_annotation
    if returns and result not in ("None", None) and not has.keys() & {"Returns", "Yields"}:
        out.append("no Returns")
    return out


def methods(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """The public methods of a class that are ours, without those that a base class documents."""
    for name in dir(kind):
        owners = [c for c in kind.__mro__ if name in vars(c) and c.__module__.startswith("sfumato")]
        if name.startswith("_") or not owners:
            continue
        found = vars(owners[0])[name]
        if isinstance(found, property | cached_property):
            continue
        first = vars(owners[-1])[name]
        bare = getattr(first, "__func__", first)
        if inspect.isfunction(bare):
            yield name, bare


def public() -> Iterator[tuple[str, Callable[..., object], bool]]:
    """Every public function, class and method: (name, what it is, whether it returns)."""
    for space, module in (("sf", sf), ("sf.study", sf.study)):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or (
                inspect.isclass(value) and issubclass(value, sf.SfumatoError)
            ):
                continue
            is_class = inspect.isclass(value)
            yield f"{space}.{name}", value, not is_class
            if is_class and name not in BY_PROTOCOL:
                for method, bare in methods(value):
                    yield f"{space}.{name}.{method}", bare, True


PUBLIC = list(public())


@pytest.mark.parametrize(
    ("value", "returns"), [(v, r) for _, v, r in PUBLIC], ids=[name for name, _, _ in PUBLIC]
)
def test_every_parameter_and_result_is_described(
    value: Callable[..., object], returns: bool
) -> None:
    assert faults(value, returns=returns) == []


def test_what_is_raised_is_a_public_error() -> None:
    for name, value, _ in PUBLIC:
        raised = NAMED.findall(sections(value).get("Raises", ""))
        assert raised or "Raises" not in sections(value), name
        assert [e for e in raised if not issubclass(getattr(sf, e), sf.SfumatoError)] == [], name


def test_every_property_and_error_has_a_docstring() -> None:
    for name in sf.__all__:
        value = getattr(sf, name)
        assert inspect.getdoc(value), name
        if inspect.isclass(value):
            held = inspect.getmembers(value, lambda v: isinstance(v, property | cached_property))
            bare = [n for n, v in held if not n.startswith("_") and not inspect.getdoc(v)]
            assert bare == [], name


@pytest.mark.parametrize("value", [v for _, v, _ in PUBLIC], ids=[name for name, _, _ in PUBLIC])
def test_examples_run_as_they_stand(value: Callable[..., object]) -> None:
    """Nothing but what an example imports itself is there, and all of it is public."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for example in finder.find(value, value.__name__, globs={}):
        assert "sfumato." not in (example.docstring or "").split(">>>", 1)[-1]
        assert runner.run(example).failed == 0


@pytest.mark.parametrize("home", sorted({v.__module__ for _, v, _ in PUBLIC}))
def test_examples_of_their_modules_give_what_they_show(home: str) -> None:
    assert doctest.testmod(import_module(home)).failed == 0


def test_what_is_missing_is_noticed() -> None:
    def documented(a: int, *, b: int = 1) -> int:
        """The sum.

        Args:
            a: One number.
            b: Another,
                over two lines.

        Returns:
            Their sum.
        """
        return a + b

    def bare(a: int) -> int:
        """The same."""
        return a

    def renamed(a: int) -> None:
        """Nothing.

        Args:
            b: Not its name.
        """

    assert faults(documented) == []
    assert len(faults(bare)) == 2
    assert faults(renamed) == ["Args ['b'] for ['a']"]
