# SPDX-License-Identifier: Apache-2.0
"""The figures of ``make house``, on small packages where they can be counted by hand."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import count
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from docs.house import PARTICIPLES, TARGETS, House, Target, Walk, cycles, table, walk

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
NUMBERS = count()


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a package from {path: text} under a name that no other test imports."""

    def written(files: dict[str, str]) -> House:
        name = f"mini{next(NUMBERS)}"
        for path, text in {"__init__.py": "", **files}.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("mini", name))
            (file.parent / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        return House(tmp_path)

    return written


def short(names: list[str]) -> list[str]:
    """Names without their package."""
    return [name.partition(".")[2] for name in names]


def test_modules_and_lines_are_those_of_the_files(build):
    house = build({"room/one.py": "a = 1\nb = 2\n", "two.py": "c = 3\n"})
    assert short(list(house.modules)) == ["", "room", "room.one", "two"]
    assert [m.lines for m in house.modules.values()] == [0, 0, 2, 1]
    assert short([m.room for m in house.modules.values()]) == ["", "room", "room", "two"]


def test_a_cycle_of_modules_and_of_folders_is_found(build):
    house = build(
        {
            "a/one.py": "import mini.b.two\n",
            "b/two.py": "def late():\n    import mini.a.one\n",
            "b/three.py": "import mini.b.two\n",
        }
    )
    assert [short(part) for part in house.module_cycles()] == [["a.one", "b.two"]]
    assert short(house.folders_in_cycles()) == ["a", "b"]


def test_folders_can_be_in_a_cycle_where_no_modules_are(build):
    house = build(
        {
            "a/one.py": "import mini.b.two\n",
            "a/low.py": "",
            "b/two.py": "",
            "b/high.py": "import mini.a.low\n",
        }
    )
    assert house.module_cycles() == []
    assert short(house.folders_in_cycles()) == ["a", "b"]


def test_what_only_types_need_and_the_way_in_make_no_cycle(build):
    guard = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mini.a.one\n"
    both = "import mini.b.two\nimport mini\n"
    house = build({"__init__.py": "import mini.a.one\n", "a/one.py": both, "b/two.py": guard})
    assert house.module_cycles() == []
    assert house.folders_in_cycles() == []


def test_cycles_of_a_graph_by_hand():
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a", "e"], "e": []}
    assert cycles(graph) == [["a", "b", "c"]]
    assert cycles({}) == []


def test_a_module_with_a_single_importer_is_found(build):
    house = build(
        {
            "a.py": "import mini.one\nimport mini.two\n",
            "b.py": "import mini.two\n",
            "one.py": "",
            "two.py": "",
        }
    )
    assert short(house.one_importer()) == ["one"]


def test_a_module_whose_public_names_are_handed_out_has_more_than_one_importer(build):
    front = """
    __all__ = ["Noun"]

    def __getattr__(name):
        from importlib import import_module

        return getattr(import_module("mini.one"), name)
    """
    house = build(
        {
            "__init__.py": dedent(front),
            "a.py": "import mini.one\nimport mini.two\n",
            "one.py": "class Noun: ...\n",
            "two.py": "class Verb: ...\n",
        }
    )
    assert short(house.one_importer()) == ["two"]


def test_full_folders_and_long_modules_are_found(build):
    files = {f"a/m{i}.py": "" for i in range(19)}
    house = build({**files, "b/long.py": "\n" * 801, "b/short.py": "\n" * 800})
    assert [name.partition("/")[2] for name in house.full_folders()] == ["a"]
    assert short(house.long_modules()) == ["b.long"]


def test_names_that_occur_twice_in_a_package_are_found(build):
    limits = "class Limits: ...\n"
    build({"a/same.py": limits + "class Kind: ...\n", "b/same.py": limits, "b/other.py": ""})
    house = build({"same.py": "class Kind: ...\n", "other.py": "class Kind: ...\n"})
    assert house.file_names_twice() == ["same.py"]  # of the first package alone
    assert house.class_names_twice() == ["Kind"]  # of the second alone


def test_numbers_that_steer_are_counted_and_those_of_limits_are_not(build):
    text = """
from fractions import Fraction
from math import sqrt
MOST = 2**27
HALF: Fraction = Fraction(1, 2)
LEAST, NAME = -1, "x"
TWICE = 2 * MOST
ROOT = sqrt(TWICE)
YES = True
ALL = (1, 2)
lower = 3
class Limits:
    CELLS = 5
def function():
    INSIDE = 4
"""
    assert [n.split(".")[-1] for n in build({"a.py": text}).steering_numbers()] == [
        *("MOST", "HALF", "LEAST", "TWICE", "ROOT"),
    ]


def test_type_switches_are_those_on_terms_and_query_sets(build):
    text = """
class QuerySet: ...
class Line(QuerySet): ...
class Short(Line): ...
class Other: ...
def asks(x):
    if isinstance(x, Other): return 0
    if isinstance(x, Other | Short): return 1
    if isinstance(x, (Line, Other)): return 2
    match x:
        case Line(): return 3
        case Other(): return 4
"""
    assert sorted(line for _, line in build({"a.py": text}).type_switches()) == [8, 9, 11]


PLANS = """
class LinearPlan:
    cost: int
class Watch:
    plan: LinearPlan
    def begin(self): ...
class Client:
    def plan(self): ...
    def release(self): ...
class _HiddenPlan: ...
"""


def test_classes_that_are_a_plan_are_found(build):
    assert build({"a.py": PLANS}).plans() == ["LinearPlan", "Watch"]


def test_a_plan_that_is_or_makes_a_runnable_is_not_counted_and_others_are(build):
    spine = "from typing import Protocol\nclass Runnable(Protocol): ...\n"
    assert build({"a.py": PLANS, "spine.py": spine}).plans() == ["LinearPlan", "Watch"]
    spine += "class WatchRun(Runnable): ...\nclass TableWatch(WatchRun): ...\n"
    own = "class OwnPlan(Runnable): ...\n"
    third = "class Third:\n    cost: int\n    def release(self): return run(TableWatch(self))\n"
    house = build({"b.py": own + third, "spine.py": spine})
    assert [name for name in house.plans() if name in ("OwnPlan", "Third")] == []


def test_a_plan_of_what_lasts_is_not_counted_nor_an_abstract_one_nor_a_name_of_before(build):
    spine = "from typing import Protocol\nclass Lasting(Protocol): ...\n"
    spine += "class ReleasePlan(ABC):\n    cost: int\n    def release(self): ...\n"
    lasting = "class StreamPlan(Lasting): ...\n"
    former = "class Law:\n    cost: int\n    def release(self): warn('', DeprecationWarning)\n"
    plain = "class Other:\n    cost: int\n    def release(self): warn('', UserWarning)\n"
    house = build({"a.py": lasting + former + plain, "spine.py": spine})
    assert house.plans() == ["Other"]


def test_debits_are_those_outside_of_the_ledger_and_the_audit(build):
    text = "class C:\n    def f(self, ledger):\n        ledger.answer_once(1)\n"
    own = "class C:\n    def f(self):\n        self.answer_once(1)\n"
    house = build({"run.py": text, "ledger/a.py": text, "audit/a.py": text, "learn.py": own})
    assert [(m.partition(".")[2], f) for m, f in house.calls("answer_once")] == [("run", "C.f")]
    assert house.calls("debit") == set()


def test_participles_are_counted_as_names_parameters_and_fields(build):
    text = "def f(asked):\n    found = asked\n    x.told = found\nclass C:\n    kept: int\n"
    house = build({"a.py": text})
    assert sorted(n.split()[-1] for n in house.participles()) == ["asked", "found", "kept", "told"]
    assert {"found", "given"} <= PARTICIPLES


def test_public_names_need_args_and_returns(build):
    text = '''
__all__ = ["Good", "Refused", "bad", "good", "silent"]
class Refused(Exception):
    """No."""
class Good:
    """It.

    Attributes:
        x: One.
    """
    def __init__(self, x): ...
def good(x) -> int:
    """Double.

    Args:
        x: One.

    Returns:
        Two.
    """
def bad(x) -> int:
    """Double.

    Args:
        x: One.
    """
def silent() -> None:
    """Do."""
'''
    assert short(build({"__init__.py": text}).undocumented()) == ["bad"]


def test_a_walk_notes_functions_once_and_changes_of_room(build):
    house = build(
        {
            "a/one.py": "from mini.b.two import g\ndef f():\n    g(); h(); g()\ndef h(): ...\n",
            "b/two.py": "def g():\n    return [x for x in ()]\n",
        }
    )
    action = import_module(next(n for n in house.modules if n.endswith(".one"))).f
    seen = walk(house, action)
    assert [name for _, name in seen.steps] == ["f", "g", "h"]
    assert short(seen.modules) == ["a.one", "b.two"]
    assert short(seen.rooms) == ["a", "b", "a"]
    assert (seen.changes, seen.returns, seen.by_modules) == (2, 1, 1)
    assert Walk(()).changes == 0


def test_the_table_says_which_targets_are_met():
    names = list(TARGETS)
    good = {name: tuple(0 for _ in TARGETS[name].most) for name in names}
    assert table(good).count("yes") == len(names)
    bad = {name: tuple(10**9 for _ in TARGETS[name].most) for name in names}
    assert "yes" not in table(bad)
    assert all(target.reason for target in TARGETS.values())
    assert str(Target((35, None), "")) == "<= 35 / -"


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("house_images")


def words_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314  our own
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_layers_are_read_from_the_longest_contract(images, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(
        """
[tool.importlinter]
[[tool.importlinter.contracts]]
type = "forbidden"
[[tool.importlinter.contracts]]
type = "layers"
layers = ["p.x", "p.y"]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["p"]
layers = ["(cli)", "run | session", "vault.a : errors : vault.b"]
"""
    )
    order = images.layers(file)
    assert order == [["p.cli"], ["p.run", "p.session"], ["p.vault.a", "p.errors", "p.vault.b"]]
    rooms = {"p.vault", "p.run", "p.new"}
    assert images.in_order(rooms, order) == ["p.new", "p.run", "p.vault"]


def test_the_picture_of_the_rooms_shows_every_import_once(build, images):
    house = build(
        {
            "run.py": "import mini.vault.a\nimport mini.low\n",
            "vault/a.py": "import mini.low\n",
            "low.py": "",
        }
    )
    (main,) = house.packages
    order = [[f"{main}.run"], [f"{main}.vault"], [f"{main}.low"]]
    svg = images.rooms_picture(house, order).svg()
    assert svg.count("</title></circle>") == 3
    assert "None is right of the diagonal." in words_of(svg)
    turned = images.rooms_picture(house, order[::-1]).svg()
    assert "3 of 3 are right of the diagonal." in words_of(turned)


def test_the_picture_of_a_walk_has_a_line_for_every_module(build, images):
    house = build({"run.py": "", "vault/a.py": ""})
    (main,) = house.packages
    run, vault = house.modules[f"{main}.run"], house.modules[f"{main}.vault.a"]
    steps = ((run, "release"), (vault, "Table.count<x>"), (run, "publish"))
    walked = Walk(steps)
    words = words_of(images.walk_picture(walked, [[f"{main}.run"], [f"{main}.vault"]], "T").svg())
    assert words[0] == "T"
    assert words[2:] == ["run", "vault", "runrelease()", "aTable.count<x>()"]


def test_the_architecture_page_has_the_layers_of_the_contract_and_all_rooms(images):
    page = (ROOT / "docs" / "architecture.md").read_text()
    block = page.split("## The import contract")[1].split("```text\n")[1].split("```")[0]
    shown = [re.findall(r"\w+", line) for line in block.splitlines()]
    optional = set(re.findall(r'"\((\w+)\)"', PROJECT.read_text()))
    contract = [[n.removeprefix("sfumato.") for n in layer] for layer in images.layers(PROJECT)]
    assert [layer for layer in shown if not set(layer) <= optional] == [
        layer for layer in contract if not set(layer) <= optional
    ]
    table = page.split("| room |")[1].split("\n\n")[0]
    listed = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert {name for layer in shown for name in layer} <= listed
    assert {p.parent.name for p in (ROOT / "src").glob("*/__init__.py")} <= listed | {"sfumato"}


@pytest.fixture(scope="module")
def house() -> House:
    """The source as it is, read once."""
    return House(ROOT / "src")


def test_the_source_has_no_cycle_and_no_participle(house):
    assert house.module_cycles() == []
    assert house.folders_in_cycles() == []
    assert house.participles() == []


def test_no_name_of_a_file_or_a_class_stands_twice_in_a_package(house):
    assert house.file_names_twice() == []
    assert house.class_names_twice() == []
