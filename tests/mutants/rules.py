# SPDX-License-Identifier: Apache-2.0
"""Small wrong changes of a source file, one at a time: what a slip of the hand could have written.

A mutant replaces the text of one node of the syntax tree. Left alone are docstrings, annotations,
decorators, ``__all__``, texts of errors, f-strings, and ``assert``, which only states what holds.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

# Each comparison with its neighbour at the boundary, and with its opposite.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_CURVE = "__import__('sfumato.privacy.gaussian', fromlist=['curve'])"
# Functions and what is written in their place where they are called by their bare name.
OTHERS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil": "__import__('math').floor",
    "floor": "__import__('math').ceil",
    "sorted": "list",
    "reversed": "iter",
    "abs": "(lambda x: x)",
    "float_up": f"{_CURVE}.float_down",
    "float_down": f"{_CURVE}.float_up",
    "sqrt_up": f"{_CURVE}.sqrt_down",
    "sqrt_down": f"{_CURVE}.sqrt_up",
}
OTHER_ATTRIBUTES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil": "floor",
    "floor": "ceil",
    "minimum": "maximum",
    "maximum": "minimum",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the bytes from ``start`` to ``end`` become ``text``.

    ``lines`` are those of the statement; a statement outside of functions runs ``on_import``.
    """

    rule: str
    start: int
    end: int
    text: str
    line: int
    lines: tuple[int, int]
    on_import: bool

    def applied_to(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """Every change of a module by one of the rules; a few are no programs (`is_program`)."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return [
        Mutant(
            rule,
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
            text,
            node.lineno,
            _lines(statement),
            not is_inside,
        )
        for node, statement, is_inside, rule, text in _changes(tree)
    ]


def is_program(mutant: Mutant, source: bytes) -> bool:
    """Whether a change can be compiled and is another program."""
    try:
        changed = ast.parse(mutant.applied_to(source))
        compile(changed, "mutant", "exec")
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def _lines(statement):
    """The lines of a statement, without those of the statements in it."""
    inner = [s.lineno for s in getattr(statement, "body", ()) if isinstance(s, ast.stmt)]
    last = min(inner) - 1 if inner else statement.end_lineno
    return statement.lineno, max(statement.lineno, last)


def _changes(tree):
    """Pairs of a node and a text for it, with the statement and whether it is in a function."""

    def visit(node, statement, is_inside):
        if _is_left_alone(node):
            return
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            statement = node if hasattr(node, "lineno") else statement
        for rule, target, text in _rules(node):
            yield target, statement, is_inside, rule, text
        if isinstance(node, ast.Raise):  # the rest is its text
            return
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            inside = is_inside or (
                name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    yield from visit(one, statement, inside)

    for part in tree.body:
        yield from visit(part, part, False)


def _is_left_alone(node):
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.Call(func=ast.Name(id="TypeVar" | "cast" | "ParamSpec")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _rules(node) -> Iterator[tuple[str, ast.AST, str]]:
    match node:
        case ast.stmt():
            yield from _of_statement(node)
        case ast.ExceptHandler(type=caught) if caught is not None:
            yield "nothing is caught", caught, "()"
        case ast.comprehension():
            for test in node.ifs:
                yield from _negated(test)
        case ast.Constant():
            for text in _other_constants(node.value):
                yield "constant", node, text
        case ast.Call():
            yield from _of_call(node)
        case ast.expr():
            yield from _of_expression(node)


def _of_statement(node):
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
            yield "statement dropped", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement dropped", node, "pass"
        case ast.AugAssign(op=operator):
            yield "statement dropped", node, "pass"
            if type(operator) in OPERATIONS:
                other = copy.deepcopy(node)
                other.op = OPERATIONS[type(operator)]()
                yield "arithmetic", node, ast.unparse(other)
        case ast.Raise():
            yield "error dropped", node, "pass"
        case ast.Break() | ast.Continue():
            yield "jump dropped", node, "pass"
        case ast.Return(value=value) if not _is_none(value):
            yield "returns nothing", node, "return None"
        case ast.With():
            for item in node.items:
                if item.optional_vars is None:
                    text = "__import__('contextlib').nullcontext()"
                    yield "guard dropped", item.context_expr, text
        case ast.If(test=test) | ast.While(test=test):
            yield from _negated(test)


def _is_none(value):
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _negated(test):
    """A condition turned round, unless another rule writes the same."""
    is_other = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if not is_other and not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        yield "condition negated", test, f"(not ({ast.unparse(test)}))"


def _other_constants(value):
    match value:
        case bool():
            yield str(not value)
        case int():
            yield from (f"({value + 1})", f"({value - 1})")
        case float():
            yield from ("1.0",) if value == 0 else (f"{value * 2!r}", f"{value / 2!r}")
        case str() | bytes():
            yield repr(value[:0]) if value else ("b'XX'" if isinstance(value, bytes) else "'XX'")


def _of_call(node):
    name = node.func
    if isinstance(name, ast.Name) and name.id in OTHERS:
        yield "other function", name, OTHERS[name.id]
    if isinstance(name, ast.Attribute) and name.attr in OTHER_ATTRIBUTES:
        text = f"{ast.unparse(name.value)}.{OTHER_ATTRIBUTES[name.attr]}"
        yield "other function", name, text
    for i in range(len(node.keywords)):
        other = copy.deepcopy(node)
        del other.keywords[i]
        yield "argument dropped", node, ast.unparse(other)
    if len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
        other = copy.deepcopy(node)
        del other.args[-1]
        yield "argument dropped", node, ast.unparse(other)


def _of_expression(node):
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                for kind in COMPARISONS[type(operator)]:
                    other = copy.deepcopy(node)
                    other.ops[i] = kind()
                    yield "comparison", node, f"({ast.unparse(other)})"
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            yield "rounding", node, f"(-(-({ast.unparse(left)}) // ({ast.unparse(right)})))"
        case ast.BinOp(op=operator) if type(operator) in OPERATIONS:
            other = copy.deepcopy(node)
            other.op = OPERATIONS[type(operator)]()
            yield "arithmetic", node, f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign dropped", node, f"({ast.unparse(operand)})"
        case ast.BoolOp(values=values):
            other = copy.deepcopy(node)
            other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and, or", node, f"({ast.unparse(other)})"
            for i in range(len(values)):
                rest = [f"({ast.unparse(v)})" for j, v in enumerate(values) if j != i]
                word = " and " if isinstance(node.op, ast.And) else " or "
                yield "condition dropped", node, f"({word.join(rest)})"
        case ast.IfExp(test=test):
            yield from _negated(test)
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                if bound is not None:
                    yield "slice", bound, ""
