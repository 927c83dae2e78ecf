# SPDX-License-Identifier: Apache-2.0
"""Measure how far one has to walk in the source: ``make house`` or ``python docs/house.py``.

Prints one line per figure: what the tree has, what it should have, and why. A package is a folder
of ``src`` with an ``__init__.py``. A *room* is what stands directly in a package: a folder with all
that is below it, or a module. Imports are those at run time, inside functions as well; what stands
below ``if TYPE_CHECKING`` is left out.

The figures, exactly:

modules, lines
    files that end with ``.py`` below ``src``, and the lines in them.
walk of a release, walk of a question
    what `sys.setprofile` sees of the second ``plan.release`` of the three 2-way tables of a domain
    of 4 x 3 x 5 cells (300 rows, no ledger), and of ``session.ask`` of a new question after a first
    one (with a ledger, both paid for): modules and functions that are called, without bodies of
    modules, lambdas and comprehensions. The noise of a release is new each time, and with it one
    or two of its modules. A *change of room* is a function called for the first time whose room is
    not that of the function before it in this order; it is a *return* if the room was visited
    before. *By modules* counts the same for modules visited for the first time.
sizes
    folders with more than 18 files, ``__init__.py`` left out, and modules of more than 800 lines.
one importer
    modules, no ``__init__.py``, that exactly one other module imports at run time, and their lines.
    Modules that a package hands out names of, on first use, are left out: people look for them by
    these names.
names twice
    names of files (no ``__init__.py``) and of classes at the top of a module that occur more than
    once in their package; ``Limits`` may, once in each room.
steering numbers
    bindings at the top of a module of a name in capitals to a number: a literal, or arithmetic and
    calls of `ARITHMETIC` with literals and such names. Fields of a class ``Limits`` are not among
    them: that is where they should stand.
type switches
    lines with ``isinstance`` or a ``case`` whose class is ``Term`` or ``QuerySet`` or derived from
    one of them.
import cycles
    strongly connected sets of modules; and the folders in such sets of folders, where a folder
    imports what its modules import. The ``__init__.py`` of a package is the way in from outside and
    is left out, and a module beside it is a folder of its own.
classes that are a plan
    classes at the top of a module with a public name that ends with ``Plan``, or with a method
    ``release`` or ``begin`` and a field or property ``plan`` or ``cost``; protocols, abstract
    classes and methods that warn that their name is one of before are left out. Counted are those
    that are neither derived from a protocol of the spine nor make a class that is: ``Runnable`` for
    what is run once, ``Lasting`` for what answers more than once and is paid for by ``begin``.
debits
    modules and functions, outside the ledger's room and the audit, that call a method ``debit`` or
    ``answer_once`` of something else than themselves.
public docstrings
    names of ``__all__`` of the packages whose docstring lacks Args or Attributes (if it takes
    anything) or Returns (if it is a function that returns something); an exception needs any
    docstring.
participles
    bindings of exactly one of `PARTICIPLES`: as a name, a parameter or a field.

``python docs/house.py one-importer`` prints what a figure counts; `LISTS` has the names.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

if TYPE_CHECKING:
    import pandas as pd

    from sfumato import Domain

SRC = Path(__file__).resolve().parents[1] / "src"
PARTICIPLES = frozenset({"found", "asked", "known", "told", "kept", "given"})
KINDS = frozenset({"Term", "QuerySet"})
SPINE = frozenset({"Runnable", "Lasting"})  # what the spine runs, and what it begins
LEDGERS = frozenset({"ledger", "budget"})  # the room whose methods debit
MOST_FILES, MOST_LINES = 18, 800
ARITHMETIC = frozenset({"Fraction", "int", "float", "sqrt", "log", "comb", "round"})


@dataclass(frozen=True)
class Target:
    """What each number of a figure should be at most, None where it is only shown; and why."""

    most: tuple[int | None, ...]
    reason: str

    def holds(self, values: tuple[int, ...]) -> bool:
        """Whether every value is within its limit."""
        pairs = zip(values, self.most, strict=True)
        return all(limit is None or value <= limit for value, limit in pairs)

    def __str__(self) -> str:
        shown = " / ".join("-" if limit is None else f"{limit:,}" for limit in self.most)
        return f"<= {shown}" if any(self.most) else shown


TARGETS = {
    "modules / lines in src": Target(
        (220, 61_000), "each module costs some twenty lines of head, and a place in mind"
    ),
    "a release: modules / functions": Target(
        (35, None), "one sitting: who mends a release has to have read them all"
    ),
    "a release: changes of room / returns / by modules": Target(
        (25, None, None), "data goes through the rooms in their order, not to and fro"
    ),
    "a question: modules / functions": Target((35, None), "the same, for one question"),
    "folders above 18 files / modules above 800 lines": Target(
        (0, None), "a folder is taken in at a glance; a module is one concept, and rarely that long"
    ),
    "modules with one importer / their lines": Target(
        (30, None), "what one module needs belongs to it, unless people look for it by name"
    ),
    "file names / class names twice": Target((0, 0), "a name leads to one place"),
    "steering numbers outside of Limits": Target(
        (350,), "what decides is read and changed in one place for each room"
    ),
    "type switches on terms and query sets": Target(
        (40,), "a new kind of query is one class, not many branches"
    ),
    "import cycles / folders in a cycle": Target(
        (0, 0), "what can be read from below can be understood from below"
    ),
    "classes that are a plan, not run by the spine": Target(
        (0,), "whatever can be run is checked, debited and stored alike"
    ),
    "modules that debit a ledger": Target((1,), "one place to prove that the debit comes first"),
    "functions that call answer_once": Target((1,), "the guarded act is written once"),
    "public names without Args and Returns": Target(
        (0,), "the reference has a word for every parameter"
    ),
    "participles bound as names": Target(
        (0,), "a noun says what a value is, a participle only that something happened"
    ),
}


@dataclass(frozen=True)
class Module:
    """A file of a package: its dotted name, its path, its syntax and its length."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def package(self) -> str:
        """The first word of its name."""
        return self.name.split(".")[0]

    @property
    def room(self) -> str:
        """The folder or module directly in the package that it is or stands in."""
        return ".".join(self.name.split(".")[:2])

    @property
    def is_package(self) -> bool:
        """Whether it is the ``__init__.py`` of a folder."""
        return self.path.name == "__init__.py"

    @property
    def folder(self) -> str:
        """The folder it stands in; of a module directly in a package, the module."""
        words = self.name.split(".")
        return self.name if self.is_package or len(words) == 2 else ".".join(words[:-1])


@dataclass(frozen=True)
class House:
    """The packages below a folder that is on the path of Python, read but not run."""

    src: Path

    @cached_property
    def modules(self) -> dict[str, Module]:
        """All modules by name."""
        modules = {}
        for top in sorted(p.parent for p in self.src.glob("*/__init__.py")):
            for path in sorted(top.rglob("*.py")):
                words = path.relative_to(self.src).with_suffix("").parts
                name = ".".join(words[:-1] if words[-1] == "__init__" else words)
                text = path.read_text()
                modules[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
        return modules

    @cached_property
    def by_path(self) -> dict[str, Module]:
        """All modules by the file they are compiled from."""
        return {str(m.path): m for m in self.modules.values()}

    @cached_property
    def packages(self) -> list[str]:
        """The packages in order of their names."""
        return sorted({m.package for m in self.modules.values()})

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """What every module imports at run time."""
        graph = grimp.build_graph(
            *self.packages, exclude_type_checking_imports=True, cache_dir=None
        )
        return {
            name: graph.find_modules_directly_imported_by(name) & set(self.modules)
            for name in self.modules
        }

    def between(self, part: Callable[[Module], str]) -> dict[str, Counter[str]]:
        """How many imports lead from a part to another; the packages' own modules left out."""
        edges: dict[str, Counter[str]] = defaultdict(Counter)
        for name, others in self.imports.items():
            for other in others:
                here, there = part(self.modules[name]), part(self.modules[other])
                if here != there and not {name, other} & set(self.packages):
                    edges[here][there] += 1
        return edges

    def one_importer(self) -> list[str]:
        """The modules, no folder and without public names, that exactly one other imports."""
        count = Counter(other for others in self.imports.values() for other in others)
        public = set[str]().union(*(self.homes(n) for n, m in self.modules.items() if m.is_package))
        return [
            name
            for name, module in self.modules.items()
            if count[name] == 1 and not module.is_package and name not in public
        ]

    def homes(self, package: str) -> set[str]:
        """The modules whose public names a package hands out, imported on first use."""
        top = import_module(package)
        public = (getattr(top, name) for name in getattr(top, "__all__", ()))
        modules = {getattr(value, "__module__", package) for value in public}
        return {name for name in modules if name in self.modules and name != package}

    def full_folders(self) -> list[str]:
        """The folders with more files than one takes in at a glance."""
        files = Counter(m.path.parent for m in self.modules.values() if not m.is_package)
        return [str(p.relative_to(self.src)) for p, n in files.items() if n > MOST_FILES]

    def long_modules(self) -> list[str]:
        """The modules with more lines than a concept usually needs."""
        return [name for name, m in self.modules.items() if m.lines > MOST_LINES]

    def module_cycles(self) -> list[list[str]]:
        """Sets of modules that import each other, the packages' own modules left out."""
        return cycles(self.between(lambda m: m.name))

    def folders_in_cycles(self) -> list[str]:
        """The folders that import each other."""
        return [n for part in cycles(self.between(lambda m: m.folder)) for n in part]

    def classes(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        """The classes at the top of a module."""
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    yield module, node

    def file_names_twice(self) -> list[str]:
        """The file names that occur more than once in a package."""
        files = [m for m in self.modules.values() if not m.is_package]
        return _twice((m.package, m.path.name) for m in files)

    def class_names_twice(self) -> list[str]:
        """The class names that occur more than once in a package; every room has its Limits."""
        return _twice((m.package, c.name) for m, c in self.classes() if c.name != "Limits")

    def steering_numbers(self) -> list[str]:
        """The names in capitals that are bound to a number at the top of a module."""
        numbers = []
        for module in self.modules.values():
            names: set[str] = set()
            for name, value in _bound(module.tree):
                if name.isupper() and _is_number(value, names):
                    names.add(name)
                    numbers.append(f"{module.name}.{name}")
        return numbers

    def derived(self, roots: Collection[str]) -> set[str]:
        """The names of some classes and of all that are derived from them."""
        bases = {c.name: {n for b in c.bases for n in names_of(b)} for _, c in self.classes()}
        names = set(roots)
        while more := {name for name, above in bases.items() if above & names} - names:
            names |= more
        return names

    def type_switches(self) -> set[tuple[str, int]]:
        """The lines, as (module, number), that ask for the kind of a term or a query set."""
        kinds, lines = self.derived(KINDS), set()
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                classes: list[ast.expr] = []
                if isinstance(node, ast.Call) and "isinstance" in names_of(node.func):
                    classes = node.args[1:]
                elif isinstance(node, ast.MatchClass):
                    classes = [node.cls]
                lines |= {(module.name, c.lineno) for c in classes if kinds & set(names_of(c))}
        return lines

    def plans(self) -> list[str]:
        """The public classes that are a plan, and neither are run by the spine nor make what is."""
        protocols = [c.name for _, c in self.classes() if c.name in SPINE and _is_protocol(c)]
        runnable = self.derived(protocols)
        return [
            c.name
            for _, c in self.classes()
            if _is_plan(c) and not runnable & ({c.name} | _called(c))
        ]

    def calls(self, *methods: str) -> set[tuple[str, str]]:
        """The (module, function) outside of the ledger's room that call a method of this name."""
        callers = set()
        for module in self.modules.values():
            if module.room.split(".")[-1] in LEDGERS or "audit" in module.room:
                continue
            for name, function in _functions(module.tree):
                callers |= {
                    (module.name, name)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in methods
                    and ast.unparse(node.func.value) != "self"
                }
        return callers

    def participles(self) -> list[str]:
        """Every binding of a participle as a name, a parameter or a field."""
        bindings = []
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    name = node.id
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    name = node.attr
                elif isinstance(node, ast.arg):
                    name = node.arg
                else:
                    continue
                if name in PARTICIPLES:
                    bindings.append(f"{module.name}:{node.lineno} {name}")
        return bindings

    def undocumented(self) -> list[str]:
        """The public names whose docstring leaves a parameter or the result without a word."""
        names = []
        for package in self.packages:
            top = import_module(package)
            public = [name for name in getattr(top, "__all__", ()) if name != "__version__"]
            names += [f"{package}.{n}" for n in public if not _is_documented(getattr(top, n))]
        return names


def cycles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected sets of two or more nodes of a directed graph."""
    nodes = sorted({*graph, *(other for others in graph.values() for other in others)})
    at = {node: i for i, node in enumerate(nodes)}
    edges = [(at[here], at[there]) for here, others in graph.items() for there in others]
    rows, columns = np.array(edges, dtype=int).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(nodes), len(nodes)))
    _, labels = connected_components(matrix, connection="strong")
    parts: dict[int, list[str]] = defaultdict(list)
    for node, label in zip(nodes, labels, strict=True):
        parts[label].append(node)
    return [part for part in parts.values() if len(part) > 1]


def names_of(node: ast.expr) -> set[str]:
    """The last words of the names in an expression: of ``a.B | C`` those are B and C."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Subscript):
        return names_of(node.value)
    if isinstance(node, ast.BinOp):
        return names_of(node.left) | names_of(node.right)
    if isinstance(node, ast.Tuple):
        return {name for part in node.elts for name in names_of(part)}
    return set()


def _twice(pairs: Iterator[tuple[str, str]]) -> list[str]:
    return sorted(name for (_, name), times in Counter(pairs).items() if times > 1)


def _bound(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names that are bound at the top of a module, with what they are bound to."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
            elif isinstance(target, ast.Name):
                yield target.id, value


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The functions and methods of a module, with their qualified names."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for part in inside:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield owner + part.name, part


def _is_number(node: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression is arithmetic of literals, and of names that are numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand, names)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left, names) and _is_number(node.right, names)
    if isinstance(node, ast.Call) and node.args and names_of(node.func) & ARITHMETIC:
        return all(_is_number(argument, names) for argument in node.args)
    return False


def _bases(node: ast.ClassDef) -> set[str]:
    return {name for base in node.bases for name in names_of(base)}


def _is_protocol(node: ast.ClassDef) -> bool:
    return "Protocol" in _bases(node)


def _called(node: ast.ClassDef) -> set[str]:
    """The names of all that a class calls."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return {name for call in calls for name in names_of(call.func)}


def _is_plan(node: ast.ClassDef) -> bool:
    if node.name.startswith("_") or {"Protocol", "ABC"} & _bases(node):
        return False
    functions = [n for n in node.body if isinstance(n, ast.FunctionDef) and not _is_former(n)]
    fields = {f.name for f in functions if "property" in map(ast.unparse, f.decorator_list)}
    fields |= {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
    runs = {"release", "begin"} & {f.name for f in functions} and {"plan", "cost"} & fields
    return node.name.endswith("Plan") or bool(runs)


def _is_former(node: ast.FunctionDef) -> bool:
    """Whether a method warns that its name is one of before."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any("DeprecationWarning" in map(ast.unparse, call.args) for call in calls)


def _is_documented(value: object) -> bool:
    text = inspect.getdoc(value) or ""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return bool(text)
    signature = inspect.signature(value)
    takes = not signature.parameters or "Args:" in text or "Attributes:" in text
    is_silent = isinstance(value, type) or signature.return_annotation in (None, "None")
    return takes and (is_silent or "Returns:" in text)


@dataclass(frozen=True)
class Walk:
    """The functions that an action calls, as (module, name), in the order of their first calls."""

    steps: tuple[tuple[Module, str], ...]

    @property
    def modules(self) -> list[str]:
        """The modules in the order of their first visits."""
        return list(dict.fromkeys(module.name for module, _ in self.steps))

    @property
    def rooms(self) -> list[str]:
        """The room of every function, repetitions in a row left out."""
        rooms = [module.room for module, _ in self.steps]
        return rooms[:1] + [there for here, there in pairwise(rooms) if here != there]

    @property
    def changes(self) -> int:
        """How often the room changes from a function to the next."""
        return max(0, len(self.rooms) - 1)

    @property
    def returns(self) -> int:
        """How many of the changes lead to a room that was visited before."""
        return len(self.rooms) - len(set(self.rooms))

    @property
    def by_modules(self) -> int:
        """How often the room changes from a module to the next, in the order of first visits."""
        rooms = {module.name: module.room for module, _ in self.steps}
        return sum(here != there for here, there in pairwise(rooms.values()))


def walk(house: House, action: Callable[[], object]) -> Walk:
    """Run an action and note which functions of the house it calls in this thread."""
    steps: dict[tuple[str, str, int], tuple[Module, str]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<"):
            module = house.by_path.get(code.co_filename)
            if module is not None:
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                steps.setdefault(key, (module, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return Walk(tuple(steps.values()))


def _people(*, even: bool) -> tuple[Domain, pd.DataFrame]:
    """A domain of 4 x 3 x 5 cells, and 300 rows: spread evenly, or in five cells."""
    import pandas as pd

    import sfumato as sf

    rows = np.arange(300)
    ab = {"a": rows % 4, "b": rows // 4 % 3} if even else {"a": 1, "b": 2}
    frame = pd.DataFrame({**ab, "c": rows // 12 % 5})
    return sf.Domain({"a": 4, "b": 3, "c": 5}), frame


def walk_of_release(house: House) -> Walk:
    """The second release of the three 2-way tables."""
    import sfumato as sf

    domain, people = _people(even=True)
    plan = sf.plan(sf.marginals(domain, 2), sf.Budget(epsilon=1, delta=1e-9))
    plan.release(people)  # what is imported on first use is imported
    return walk(house, lambda: plan.release(people))


def walk_of_question(house: House) -> Walk:
    """A new question in a session with a ledger, after a first one; both are paid for.

    Nearly without noise, so that it is: nobody expects all the people in so few cells.
    """
    import sfumato as sf

    domain, people = _people(even=False)
    budget = sf.Budget(epsilon=100, delta=1e-9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.ledger"
        sf.Ledger.create(path, budget, "people", unit="row")
        with sf.open_session(
            people, domain, budget, ledger=path, name="people", questions=50, records=300
        ) as session:
            session.ask("SELECT COUNT(*) FROM data WHERE a = 1")
            return walk(house, lambda: session.ask("SELECT COUNT(*) FROM data WHERE b = 2"))


def figures(house: House) -> dict[str, tuple[int, ...]]:
    """Every figure of the house, under the names of `TARGETS`."""
    release, question = walk_of_release(house), walk_of_question(house)
    single = house.one_importer()
    files, classes = house.file_names_twice(), house.class_names_twice()
    debiting = {module for module, _ in house.calls("debit", "answer_once")}
    values = (
        (len(house.modules), sum(m.lines for m in house.modules.values())),
        (len(release.modules), len(release.steps)),
        (release.changes, release.returns, release.by_modules),
        (len(question.modules), len(question.steps)),
        (len(house.full_folders()), len(house.long_modules())),
        (len(single), sum(house.modules[name].lines for name in single)),
        (len(files), len(classes)),
        (len(house.steering_numbers()),),
        (len(house.type_switches()),),
        (len(house.module_cycles()), len(house.folders_in_cycles())),
        (len(house.plans()),),
        (len(debiting),),
        (len(house.calls("answer_once")),),
        (len(house.undocumented()),),
        (len(house.participles()),),
    )
    return dict(zip(TARGETS, values, strict=True))


def table(values: Mapping[str, tuple[int, ...]]) -> str:
    """The figures beside their targets, one line each."""
    rows = [("", "now", "target", "met", "because")]
    for name, value in values.items():
        target = TARGETS[name]
        now = " / ".join(f"{v:,}" for v in value)
        rows.append((name, now, str(target), "yes" if target.holds(value) else "", target.reason))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in rows
    )


LISTS: dict[str, Callable[[House], Collection[object]]] = {
    "sizes": lambda house: house.full_folders() + house.long_modules(),
    "one-importer": House.one_importer,
    "files": House.file_names_twice,
    "classes": House.class_names_twice,
    "numbers": House.steering_numbers,
    "switches": lambda house: sorted(house.type_switches()),
    "cycles": House.module_cycles,
    "folders": House.folders_in_cycles,
    "plans": House.plans,
    "debits": lambda house: sorted(house.calls("debit", "answer_once")),
    "undocumented": House.undocumented,
    "participles": House.participles,
    "release": lambda house: walk_of_release(house).modules,
    "release-rooms": lambda house: walk_of_release(house).rooms,
    "question": lambda house: walk_of_question(house).modules,
    "question-rooms": lambda house: walk_of_question(house).rooms,
}


def main(names: list[str]) -> None:
    """Print the table, or what the figures of these names count."""
    sys.path.insert(0, str(SRC))
    house = House(SRC)
    if not names:
        print(table(figures(house)))
    for name in names:
        if name not in LISTS:
            raise SystemExit(f"{name!r} is none of {', '.join(LISTS)}")
        print(*LISTS[name](house), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
