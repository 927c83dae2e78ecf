# SPDX-License-Identifier: Apache-2.0
"""A fit seen from weighted rows: margins, value, gradient, curvature; and rows that comply.

Rows are cells with weights; a histogram of any number of cells is known by the few that weigh
something. ``RowProblem`` has what the search for rows (``rows``) needs. The derivative of f by the
weight of a row is the sum of one entry of the gradient per set of attributes (its score).
``curvature`` has one number per entry with

    f(h + e) <= f(h) + <G, e> + 1/2 sum_x curvature_x e_x^2        (e: a change of the margins),

for ``F'WF <= diag(F'WF 1)`` where F has no negative entry (Gershgorin), and ``<= lambda_max I``
always. ``make_possible`` and ``meet_published`` return rows that constraints allow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.refine.feasibility import witness
from sfumato.refine.reconstruct import Fit, FitPart
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import ADDED_UP, spend
from sfumato.solve.nonnegative import rake
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.clauses import read_clauses
from sfumato.workload.constraints import Constraints, Linked
from sfumato.workload.predicates import Classes, Condition
from sfumato.workload.terms import Predicates
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Codes",
    "Gradient",
    "OnRows",
    "RakedRows",
    "RowBlocks",
    "RowConditions",
    "RowLayout",
    "RowProblem",
    "is_wide",
    "joined",
    "layout",
    "make_possible",
    "meet_published",
    "problem",
    "read_conditions",
    "read_impossible",
    "with_published",
]


# Conditions over too many cells to tabulate

Codes = Integers  # attribute x row


def is_wide(part: FitPart) -> bool:
    """Whether the table of a part is never built."""
    return part.term.is_wide


@dataclass(frozen=True, eq=False)
class RowConditions:
    """Distinct conditions as boxes, evaluated on rows; equal ones are merged.

    Every condition is a union of boxes (``workload/clauses.py``); a row is in a box when no
    attribute fails it, so that changing one attribute of a row turns only conditions that look at
    it. ``values`` and ``weights`` are those of the queries, summed over equal conditions, which
    have one answer x; ``sum w (x - y)^2`` is then the sum of the
    weights times ``(x - mean)^2``, plus ``fixed``, which nothing can change.
    """

    first: Integers
    condition: Integers
    look_start: Integers
    look_clause: Integers
    look_mask: Integers
    masks: Mask
    places: tuple[Integers, ...]
    values: Array
    weights: Array
    fixed: float

    @property
    def count(self) -> int:
        """Distinct conditions that can hold."""
        return len(self.first)

    def truth(self, codes: Codes) -> Mask:
        """Whether each row is in each condition, row by condition."""
        out = np.ones((codes.shape[1], len(self.condition)), dtype=np.bool_)
        for a, row in enumerate(codes):
            for e in range(self.look_start[a], self.look_start[a + 1]):
                out[:, self.look_clause[e]] &= self.masks[self.look_mask[e] + row]
        if not self.count:
            return out[:, :0]
        return np.asarray(np.logical_or.reduceat(out, self.first, axis=1), dtype=np.bool_)

    def answers(self, codes: Codes, weights: Array) -> Array:
        """The weight of the rows in each condition."""
        out = np.zeros(self.count)
        for part in self._chunks(codes):
            out += weights[part] @ self.truth(codes[:, part])
        return out

    def scores(self, codes: Codes, pull: Array) -> Array:
        """For each row, the sum of the pulls of the conditions it is in."""
        out = np.zeros(codes.shape[1])
        for part in self._chunks(codes):
            out[part] = self.truth(codes[:, part]) @ pull
        return out

    def of_parts(self, answers: Array) -> list[Array]:
        """The answers in the order of the parts; 0 where a condition never holds."""
        padded = np.append(answers, 0.0)
        return [padded[places] for places in self.places]

    def _chunks(self, codes: Codes) -> list[slice]:
        step = max(1, LIMITS.truth_values_at_once // max(1, len(self.condition)))
        return [slice(i, i + step) for i in range(0, codes.shape[1], step)]


def read_conditions(domain: Domain, parts: Sequence[FitPart]) -> RowConditions:
    """The conditions of the wide parts, none if there are no wide parts."""
    terms = [p.term for p in parts if p.term.as_conditions()]
    conditions = [c for t in terms for c in t.as_conditions()]
    if not conditions:
        none = np.zeros(0, dtype=np.int64)
        first = np.zeros(len(domain.names) + 1, dtype=np.int64)
        flags = np.zeros(0, dtype=np.bool_)
        return RowConditions(
            none, none, first, none, none, flags, (), np.zeros(0), np.zeros(0), 0.0
        )
    clauses = read_clauses(domain, conditions)
    if not clauses.is_complete:
        raise TooLarge(
            "a condition over many attributes is a union of more than 64 boxes; write it as "
            "several conditions, or ask about fewer attributes at once"
        )
    ends = np.append(clauses.first, clauses.clauses)
    condition = np.repeat(np.arange(clauses.count), np.diff(ends))
    classes = Classes.of(
        conditions, domain, domain.in_order({n for t in terms for n in t.attributes})
    )
    class_of = dict(zip(classes.names, classes.class_of, strict=True))
    masks_of = dict(zip(clauses.names, clauses.masks, strict=True))
    start, look, at, length = [0], [], [], 0
    masks: list[Mask] = []
    for name in domain.names:
        if name in masks_of:
            cells = masks_of[name][class_of[name]]  # cell x clause
            for c in np.flatnonzero(~cells.all(axis=0)):
                look.append(int(c))
                at.append(length)
                masks.append(cells[:, c])
                length += len(cells)
        start.append(len(look))
    places = np.split(clauses.places, np.cumsum([t.rows for t in terms])[:-1])
    values, weights, fixed = _merged(parts, clauses.places, clauses.count)
    return RowConditions(
        clauses.first,
        condition.astype(np.int64),
        np.array(start, dtype=np.int64),
        np.array(look, dtype=np.int64),
        np.array(at, dtype=np.int64),
        np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_),
        tuple(places),
        values,
        weights,
        fixed,
    )


def read_impossible(domain: Domain, impossible: Sequence[Condition]) -> RowConditions:
    """Conditions that no row may meet, as ones of no weight."""
    held = tuple(c for c in impossible if c.attributes)
    if not held:
        return read_conditions(domain, ())
    term = Predicates(domain, "impossible", 1.0, held, tuple(map(str, held)))
    return read_conditions(domain, [FitPart(term, np.zeros(len(held)), np.zeros(len(held)))])


def joined(one: RowConditions, other: RowConditions) -> RowConditions:
    """The conditions of both, those of the other after those of the one; for compiled loops."""
    if not other.count:
        return one
    start, look, at = [0], [], []
    for a in range(len(one.look_start) - 1):
        for c, clause, mask in ((one, 0, 0), (other, len(one.condition), len(one.masks))):
            entries = slice(c.look_start[a], c.look_start[a + 1])
            look.append(c.look_clause[entries] + clause)
            at.append(c.look_mask[entries] + mask)
        start.append(start[-1] + len(look[-2]) + len(look[-1]))
    return RowConditions(
        np.concatenate([one.first, other.first + len(one.condition)]),
        np.concatenate([one.condition, other.condition + one.count]),
        np.array(start, dtype=np.int64),
        np.concatenate(look),
        np.concatenate(at),
        np.concatenate([one.masks, other.masks]),
        one.places,
        np.concatenate([one.values, other.values]),
        np.concatenate([one.weights, other.weights]),
        one.fixed,
    )


def _merged(parts: Sequence[FitPart], places: Integers, count: int) -> tuple[Array, Array, float]:
    """Per distinct condition the weighted mean of its values, its weight, and the rest of f."""
    values = np.concatenate([p.values for p in parts])
    weights = np.concatenate([p.weights for p in parts])
    total = np.bincount(places + 1, weights=weights, minlength=count + 1)[1:].astype(np.float64)
    sums = np.bincount(places + 1, weights=weights * values, minlength=count + 1)[1:]
    means = np.divide(sums, total, out=np.zeros(count), where=total > 0)
    held = np.append(means, 0.0)[places]  # the last: conditions that never hold answer 0
    return means, total, 0.5 * float(weights @ (values - held) ** 2)


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Where the cells of every set stand in one flat vector, and which sets hold an attribute."""

    sizes: Integers
    sets: tuple[Names, ...]
    offset: Integers
    cells: Integers
    member_start: Integers
    member: Integers
    stride: Integers
    held_start: Integers
    held_set: Integers
    held_stride: Integers

    @property
    def length(self) -> int:
        """Cells of all sets together."""
        return int(self.cells.sum())

    @cached_property
    def sweep(self) -> float:
        """Multiplications of one row when all cells of all of its attributes are tried, about."""
        readers = np.diff(self.held_start)
        return LIMITS.run_entry_steps * float((self.sizes * (readers + 4)).sum())

    @cached_property
    def starts(self) -> Integers:
        """The first column of every attribute, one column a cell, and the number of columns."""
        return np.append(0, np.cumsum(self.sizes, dtype=np.int64))

    @cached_property
    def blocks(self) -> RowBlocks:
        """The tables, each once."""
        return _blocks(self, is_whole=False)

    @cached_property
    def whole_blocks(self) -> RowBlocks:
        """The tables, each once for every attribute that may move in it."""
        return _blocks(self, is_whole=True)

    @cached_property
    def _totals(self) -> Integers:
        """The cells of sets without an attribute: the number of records."""
        return np.asarray(self.offset[np.diff(self.member_start) == 0], dtype=np.int64)

    @property
    def _places(self) -> tuple[npt.NDArray[np.integer], ...]:
        """The blocks as loops over places read them: what is added up has no sign."""
        b = self.blocks
        starts, origin, stride = (x.view(np.uint64) for x in (self.starts, b.origin, b.stride))
        return starts, origin, b.first, b.last, b.member_start, b.member, stride

    def slice_of(self, s: int) -> slice:
        """The cells of one set."""
        return slice(int(self.offset[s]), int(self.offset[s] + self.cells[s]))

    def from_blocks(self, entries: Array, total: float) -> Array:
        """The cells of the layout, from the entries of ``blocks`` and the number of records."""
        out = np.empty(self.length)
        out[self.blocks.source] = entries
        out[self._totals] = total
        return out

    def pieces(self, blocks: RowBlocks, entries: Array) -> Iterator[tuple[list[int], slice, Array]]:
        """For every block its attributes R, its columns, and its entries: cells of R x columns."""
        begin = 0
        for block in range(len(blocks.origin)):
            ends = blocks.member_start[block : block + 2]
            rest = blocks.member[slice(*ends)].tolist()
            run = slice(*self.starts[[blocks.first[block], blocks.last[block]]].tolist())
            rows, width = prod(self.sizes[rest].tolist()), run.stop - run.start
            yield rest, run, entries[begin : begin + rows * width].reshape(rows, width)
            begin += rows * width

    def margins(self, codes: Codes, weights: Array) -> Array:
        """The margins of weighted rows over all sets."""
        from sfumato.solve.row_kernels import add_margins

        entries = np.zeros(len(self.blocks.source))
        spend(LIMITS.row_entry_steps * len(self.sets) * codes.shape[1])
        add_margins(codes, weights, *self._places, entries)
        return self.from_blocks(entries, float(weights.sum()))

    def scores(self, codes: Codes, gradient: Array) -> Array:
        """For every row the sum of the entries of its cells."""
        from sfumato.solve.row_kernels import add_scores

        out = np.full(codes.shape[1], float(gradient[self._totals].sum()))
        spend(LIMITS.row_entry_steps * len(self.sets) * codes.shape[1])
        add_scores(codes, gradient[self.blocks.source], *self._places, out)
        return out


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Tables side by side, as the compiled loops over rows read them.

    All tables of two attributes are one matrix over the columns of all attributes: what every cell
    of every attribute adds to the score of a row is the sum of one line of it per attribute. A
    block is what there is of such a matrix: for some attributes R the tables of all sets R + {a},
    a a run of attributes next to each other, so that the entries of one cell of R are next to each
    other, too. Sums over whole runs take a fraction of the time of sums over tables.

    ``source`` are the cells of the layout behind the entries, block by block, -1 where a run goes
    on over an attribute of R; the other names are those of ``solve/row_kernels.py``.
    """

    source: Integers
    origin: Integers
    first: Integers
    last: Integers
    member_start: Integers
    member: Integers
    stride: Integers
    held_start: Integers
    held_block: Integers
    held_stride: Integers
    run_start: Integers
    run_block: Integers

    def entries(self, cells: Array) -> Array:
        """The entries of all blocks, from the cells of the layout; 0 where there is none."""
        return np.append(cells, 0.0)[self.source]


def _blocks(places: RowLayout, *, is_whole: bool) -> RowBlocks:
    """Every set with its last attribute in a run; if whole, with each of its attributes in one."""
    from sfumato.solve.row_kernels import fill_sources

    starts = places.starts.tolist()
    runs_of = [
        (first, last, rest, sets)
        for rest, completions in _by_rest(places, is_whole).items()
        for first, last, sets in _runs(completions, rest if is_whole else ())
    ]
    # Those over the same attributes next to each other: they are added up together.
    runs_of.sort(key=lambda run: run[:2])
    first, last, rests, sets = (
        (list(x) for x in zip(*runs_of, strict=True)) if runs_of else ([],) * 4
    )
    entry_set = [s for of in sets for s in of]
    member_start = np.cumsum([0, *map(len, rests)], dtype=np.int64)
    width = [starts[j] - starts[i] for i, j in zip(first, last, strict=True)]
    origin, stride, length = [], [], 0
    held: list[list[tuple[int, int]]] = [[] for _ in places.sizes]
    runs: list[list[tuple[int, int]]] = [[] for _ in places.sizes]
    for block, rest in enumerate(rests):
        at, step, steps = length - starts[first[block]], width[block], []
        for a in reversed(rest):
            steps.append(step)
            held[a].append((block, step))
            at -= step * starts[a]
            step *= int(places.sizes[a])
        for a, s in zip(range(first[block], last[block]), sets[block], strict=True):
            if s >= 0:
                runs[a].append((block, 0))
        origin.append(at)
        stride += reversed(steps)
        length += step
    member = np.array([a for rest in rests for a in rest], dtype=np.int64)
    ends = np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)
    source = np.empty(length, dtype=np.int64)
    fill_sources(
        *ends, np.array(width, dtype=np.int64), member_start, member, places.sizes,
        np.array(entry_set, dtype=np.int64), places.offset, places.member_start, places.member,
        places.stride, source,
    )  # fmt: skip
    return RowBlocks(
        source,
        np.array(origin, dtype=np.int64),
        *ends,
        member_start,
        member,
        np.array(stride, dtype=np.int64),
        *_listed(held),
        *_listed(runs)[:2],
    )


def _runs(
    completions: Sequence[tuple[int, int]], rest: tuple[int, ...]
) -> list[tuple[int, int, list[int]]]:
    """Runs of neighbouring attributes, each with its sets; those of the rest leave no gap."""
    out: list[tuple[int, int, list[int]]] = []
    for a, s in sorted(completions):
        first, last, sets = out.pop() if out else (a, a, [])
        between = range(last, a)
        if a < last or any(x not in rest for x in between):
            out.append((first, last, sets))
            first, sets, between = a, [], range(0)
        out.append((first, a + 1, [*sets, *(-1 for _ in between), s]))
    return out


def _by_rest(places: RowLayout, is_whole: bool) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """By the other attributes of a set: the attributes that complete it, and the set."""
    out: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for s in range(len(places.sets)):
        names = places.member[places.member_start[s] : places.member_start[s + 1]].tolist()
        for axis in range(0 if is_whole else max(0, len(names) - 1), len(names)):
            rest = (*names[:axis], *names[axis + 1 :])
            out.setdefault(rest, []).append((names[axis], s))
    return out


def _listed(pairs: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers, Integers]:
    """Lists one after the other: where each begins, the firsts, the seconds."""
    flat = [pair for some in pairs for pair in some]
    return (
        np.cumsum([0, *map(len, pairs)], dtype=np.int64),
        np.array([one for one, _ in flat], dtype=np.int64),
        np.array([two for _, two in flat], dtype=np.int64),
    )


def layout(sizes: dict[str, int], sets: tuple[Names, ...]) -> RowLayout:
    """The layout of sets of attributes; refused when their tables do not fit in memory."""
    number = {name: a for a, name in enumerate(sizes)}
    cells = [prod(sizes[n] for n in names) for names in sets]
    if sum(cells) > WORKLOAD_LIMITS.array_entries:
        raise TooLarge(
            f"the tables of {len(sets):,} sets of attributes hold {sum(cells):,} cells together, "
            f"the limit is {WORKLOAD_LIMITS.array_entries:,}; ask about fewer or coarser attributes"
        )
    starts, member, stride = [0], [], []
    held: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for s, names in enumerate(sets):
        step = cells[s]
        for name in names:
            step //= sizes[name]
            member.append(number[name])
            stride.append(step)
            held[number[name]].append((s, step))
        starts.append(len(member))
    flat = [pair for pairs in held for pair in pairs]
    return RowLayout(
        np.array(list(sizes.values()), dtype=np.int64),
        sets,
        np.cumsum([0, *cells], dtype=np.int64)[:-1],
        np.array(cells, dtype=np.int64),
        np.array(starts, dtype=np.int64),
        np.array(member, dtype=np.int64),
        np.array(stride, dtype=np.int64),
        np.cumsum([0, *map(len, held)], dtype=np.int64),
        np.array([s for s, _ in flat], dtype=np.int64),
        np.array([step for _, step in flat], dtype=np.int64),
    )


@dataclass(frozen=True, eq=False)
class Gradient:
    """One number per cell of every set, and one per wide condition."""

    cells: Array
    pull: Array


@dataclass(frozen=True, eq=False)
class OnRows:
    """A problem seen from rows that stay as they are: which conditions hold is looked up once."""

    problem: RowProblem
    codes: Codes

    @cached_property
    def _truth(self) -> Array | None:
        conditions = self.problem.conditions
        if not 0 < conditions.count * self.codes.shape[1] <= LIMITS.truth_values_stored:
            return None
        return conditions.truth(self.codes).astype(np.float64)

    def margins(self, weights: Array) -> Gradient:
        """What the parts read of the rows with these weights."""
        if self._truth is None:
            return self.problem.margins(self.codes, weights)
        return Gradient(self.problem.layout.margins(self.codes, weights), weights @ self._truth)

    def scores(self, gradient: Gradient) -> Array:
        """The derivative of f by the weight of every row."""
        if self._truth is None:
            return self.problem.scores(self.codes, gradient)
        return self.problem.layout.scores(self.codes, gradient.cells) + self._truth @ gradient.pull


@dataclass(frozen=True, eq=False)
class RowProblem:
    """A fit with its parts split into tables and wide conditions."""

    fit: Fit
    total: float
    tables: tuple[tuple[int, FitPart], ...]  # with the number of their set
    layout: RowLayout
    conditions: RowConditions
    constraints: Constraints | None = None

    @cached_property
    def guarded(self) -> RowConditions:
        """The wide conditions, and after them those that no row may meet."""
        if self.constraints is None:
            return self.conditions
        barred = read_impossible(self.fit.domain, self.constraints.impossible)
        return joined(self.conditions, barred)

    def guard(self, pull: Array) -> Array:
        """The pulls of ``guarded``: infinite where no row may go."""
        barred = np.full(self.guarded.count - self.conditions.count, np.inf)
        return np.concatenate([pull, barred])

    @cached_property
    def possible(self) -> tuple[Mask | None, ...]:
        """For every set, the cells that a row can be in; None if all."""
        if self.constraints is None:
            return (None,) * len(self.layout.sets)
        linked = self.constraints.labels()
        return tuple(
            self.constraints.possible(names).reshape(-1) if linked.keys() & set(names) else None
            for names in self.layout.sets
        )

    def are_possible(self, codes: Codes) -> Mask:
        """Which rows can be records."""
        if self.constraints is None:
            return np.ones(codes.shape[1], dtype=np.bool_)
        return self.constraints.are_possible(codes)

    def margins(self, codes: Codes, weights: Array) -> Gradient:
        """What the parts read of weighted rows."""
        cells = self.layout.margins(codes, weights)
        return Gradient(cells, self.conditions.answers(codes, weights))

    def value(self, seen: Gradient) -> float:
        """f at the margins of rows."""
        return self._evaluate(seen, None)

    def gradient(self, seen: Gradient) -> tuple[float, Gradient]:
        """f and its derivatives by the margins."""
        out = np.zeros(self.layout.length)
        value = self._evaluate(seen, out)
        conditions = self.conditions
        return value, Gradient(out, conditions.weights * (seen.pull - conditions.values))

    def scores(self, codes: Codes, gradient: Gradient) -> Array:
        """The derivative of f by the weight of every row."""
        out = self.layout.scores(codes, gradient.cells)
        return out + self.conditions.scores(codes, gradient.pull) if self.conditions.count else out

    def _evaluate(self, seen: Gradient, out: Array | None) -> float:
        spend(2 * ADDED_UP * self.layout.length)
        # Part by part: the answers of one part are all that is held beside the margins.
        conditions = self.conditions
        misses = seen.pull - conditions.values
        value = conditions.fixed + 0.5 * float(conditions.weights @ misses**2)
        value += self._direct.evaluate(seen.cells, out)
        for s, part in self._indirect:
            at = self.layout.slice_of(s)
            misfit = part.term.answer(seen.cells[at].reshape(part.term.shape)) - part.values
            pulled = part.weights * misfit
            value += 0.5 * float(pulled @ misfit)
            if out is not None:
                out[at] += np.asarray(part.term.adjoint(pulled), dtype=np.float64).reshape(-1)
        return value

    @cached_property
    def curvature(self) -> Array:
        """The curvature of the module docstring, cell by cell."""
        out = self._direct.weights.copy()
        for s, part in self._indirect:
            out[self.layout.slice_of(s)] += _bend(part)
        return out

    @cached_property
    def even_curvature(self) -> Array:
        """The curvature of the sets that hold an attribute, added up; none if one has two."""
        bend, places = self.curvature, self.layout
        none = np.zeros(0)
        if not places.length:
            return none
        each = np.minimum.reduceat(bend, places.offset)
        if (each != np.maximum.reduceat(bend, places.offset)).any():
            return none
        owner = np.repeat(np.arange(len(places.sizes)), np.diff(places.held_start))
        out = np.bincount(owner, each[places.held_set], minlength=len(places.sizes))
        return np.asarray(out, dtype=np.float64)

    @cached_property
    def _indirect(self) -> tuple[tuple[int, FitPart], ...]:
        """The other parts, which ask for sums of cells."""
        return tuple(t for t in self.tables if not t[1].term.is_table)

    @cached_property
    def _direct(self) -> _DirectTables:
        """The parts that ask for the tables themselves."""
        return _direct_tables(self.layout, [t for t in self.tables if t[1].term.is_table])

    def answers(self, codes: Codes, weights: Array) -> list[Array]:
        """``F h`` of every part, in the order of the fit."""
        seen = self.margins(codes, weights)
        wide = iter(self.conditions.of_parts(seen.pull))
        narrow = iter(self.tables)
        out = []
        for part in self.fit.parts:
            if is_wide(part):
                out.append(next(wide))
            else:
                s, _ = next(narrow)
                table = seen.cells[self.layout.slice_of(s)]
                is_table = part.term.is_table
                shaped = table if is_table else table.reshape(part.term.shape)
                out.append(table.copy() if is_table else part.term.answer(shaped))
        return out


@dataclass(frozen=True, eq=False)
class _DirectTables:
    """All parts whose queries are the cells themselves, as one function over the layout.

    Thousands of small tables take one pass. A cell that several parts ask for, as measured and as
    a prior expects it, has their mean; ``fixed`` is the part of f that nothing can change.
    """

    values: Array
    weights: Array
    fixed: float

    def evaluate(self, cells: Array, out: Array | None) -> float:
        """Their part of f; its gradient is added to ``out``."""
        misses = cells - self.values
        pulled = self.weights * misses
        if out is not None:
            out += pulled
        return self.fixed + 0.5 * float(pulled @ misses)


def _direct_tables(places: RowLayout, tables: Sequence[tuple[int, FitPart]]) -> _DirectTables:
    weights, values, fixed = np.zeros(places.length), np.zeros(places.length), 0.0
    for s, part in tables:
        at = places.slice_of(s)
        before, after = weights[at], weights[at] + part.weights
        share = np.divide(part.weights, after, out=np.zeros_like(after), where=after > 0)
        misses = part.values - values[at]
        fixed += 0.5 * float((before * share) @ misses**2)
        values[at] += share * misses
        weights[at] = after
    return _DirectTables(values, weights, fixed)


def problem(fit: Fit, total: float, constraints: Constraints | None = None) -> RowProblem:
    """The problem of a fit and a total; refused where its tables do not fit in memory."""
    narrow = [p for p in fit.parts if not is_wide(p)]
    sets = tuple(dict.fromkeys(p.term.attributes for p in narrow))
    number = {names: s for s, names in enumerate(sets)}
    sizes = {a.name: a.size for a in fit.domain}
    return RowProblem(
        fit,
        total,
        tuple((number[p.term.attributes], p) for p in narrow),
        layout(sizes, sets),
        read_conditions(fit.domain, [p for p in fit.parts if is_wide(p)]),
        constraints,
    )


def _bend(part: FitPart) -> Array | float:
    """A diagonal matrix above ``F'WF``: the row sums, or the maximum eigenvalue if smaller."""
    term, weights = part.term, part.weights
    if not weights.any():
        return 0.0

    def gram(x: Array) -> Array:
        moved = term.adjoint(weights * term.answer(x.reshape(term.shape)))
        return np.asarray(moved, dtype=np.float64).reshape(-1)

    maximum = LIMITS.row_power_factor * _maximum_eigenvalue(gram, term.cells)
    if not term.is_nonnegative:
        return maximum
    sums = gram(np.ones(term.cells))
    return sums if float(sums.sum()) <= maximum * term.cells else maximum


def _maximum_eigenvalue(gram: Callable[[Array], Array], cells: int) -> float:
    """The maximum eigenvalue, from below, by power iteration from a fixed uneven start."""
    x = 1.0 + np.cos(1.7 * np.arange(cells) ** 2)
    eigenvalue = 0.0
    for _ in range(LIMITS.row_power_steps):
        size = float(np.linalg.norm(x))
        if size == 0:
            return eigenvalue
        x = gram(x / size)
        eigenvalue = float(np.linalg.norm(x))
    return eigenvalue


# Rows that constraints allow

Uniforms = Callable[[int], Array]  # so many numbers in [0, 1)


def make_possible(
    constraints: Constraints,
    codes: Integers,
    shares: Sequence[Array],
    uniforms: Uniforms,
    fixed: Collection[str] = (),
) -> Integers:
    """The rows (attribute x row), with impossible ones drawn again as the shares say.

    The attributes of linked conditions are drawn again together, from the product of the shares,
    conditional on being possible: classes of cells first (their shares are sums), then a cell
    within each class. Other attributes stay as they are.

    Attributes in ``fixed`` stay as they are; a row must then be possible as far as they tell.
    """
    out = codes.copy()
    for part in constraints.linked:
        at = [constraints.domain.index(n) for n in part.classes.names]
        pairs = zip(part.classes.class_of, at, strict=True)
        bad = np.flatnonzero(~part.possible[tuple(of[out[a]] for of, a in pairs)])
        held = [i for i, n in enumerate(part.classes.names) if n in fixed]
        rows_held = [part.classes.class_of[i][out[at[i], bad]] for i in held]
        classes_held = np.array(rows_held, dtype=np.int64).reshape(len(held), len(bad))
        cases, which = np.unique(classes_held, axis=1, return_inverse=True)
        for case, classes in enumerate(cases.T):
            here = bad[which.reshape(-1) == case]
            drawn = _drawn(
                part,
                [shares[a] for a in at],
                len(here),
                uniforms,
                dict(zip(held, classes, strict=True)),
            )
            for i, a in enumerate(at):
                if i not in held:
                    out[a, here] = drawn[i]
    return out


def _drawn(
    part: Linked,
    shares: Sequence[Array],
    count: int,
    uniforms: Uniforms,
    fixed: Mapping[int, int],
) -> Integers:
    """Cells of linked attributes from the product of shares, given that they are possible.

    ``fixed`` are the classes of the attributes that stay as they are.
    """
    possible = np.zeros_like(part.possible)
    at = tuple(fixed[i] if i in fixed else slice(None) for i in range(possible.ndim))
    possible[at] = part.possible[at]
    table = possible.astype(np.float64)
    for axis, (of, share) in enumerate(zip(part.classes.class_of, shares, strict=True)):
        if axis not in fixed:
            mass = np.bincount(of, share, minlength=table.shape[axis])
            table *= mass.reshape([-1 if i == axis else 1 for i in range(table.ndim)])
    if not table.sum() > 0:  # nothing possible has a share: all of it alike
        table = possible.astype(np.float64)
    classes = np.unravel_index(_searched(table.reshape(-1), uniforms(count)), table.shape)
    out = np.empty((table.ndim, count), dtype=np.int64)
    for axis, (of, share) in enumerate(zip(part.classes.class_of, shares, strict=True)):
        for label in np.unique(classes[axis]):
            cells, here = np.flatnonzero(of == label), np.flatnonzero(classes[axis] == label)
            held = share[cells] if share[cells].sum() > 0 else np.ones(len(cells))
            out[axis, here] = cells[_searched(held, uniforms(len(here)))]
    return out


def _searched(weights: Array, at: Array) -> Integers:
    """Places in proportion to weights; never one of weight 0."""
    edges = np.cumsum(weights)
    places = np.searchsorted(edges, at * edges[-1], side="right")
    return np.asarray(np.minimum(places, np.flatnonzero(weights > 0)[-1]), dtype=np.int64)


def with_published(fit: Fit, constraints: Constraints | None) -> Fit:
    """The fit with published tables as parts of great weight: a search is drawn towards them."""
    if constraints is None or not constraints.published:
        return fit
    maximum = max((float(p.weights.max(initial=0.0)) for p in fit.parts), default=0.0) or 1.0
    extra = []
    for table in constraints.published:
        weights = np.full(table.values.size, LIMITS.published_weight * maximum)
        extra.append(FitPart(table.term(fit.domain), table.values.reshape(-1), weights))
    return Fit(fit.domain, (*fit.parts, *extra))


@dataclass(frozen=True, eq=False)
class RakedRows:
    """Rows with raked weights; ``off`` is the largest miss of a published count, per record."""

    codes: Integers
    weights: Array
    off: float


def meet_published(constraints: Constraints, codes: Integers, weights: Array) -> RakedRows:
    """The rows with weights that have the published margins, rows added where that needs some.

    Exact to ``published_gap`` of the total where rows that meet them are known
    (``feasibility.witness``); tables that no data set has are refused there.
    """
    met = _raked(constraints, codes, weights)
    if met.off > WORKLOAD_LIMITS.published_gap:
        try:
            feasible = witness(constraints)
        except TooLarge:
            feasible = None
        if feasible is not None and len(feasible.weights):
            share = (
                LIMITS.feasible_rows_share
                * constraints.published[0].total
                / float(feasible.weights.sum())
            )
            both = np.concatenate([codes, feasible.codes], axis=1)
            added = np.append((1 - LIMITS.feasible_rows_share) * weights, share * feasible.weights)
            met = min(met, _raked(constraints, both, added), key=lambda m: m.off)
    held = met.weights > 0
    return RakedRows(np.ascontiguousarray(met.codes[:, held]), met.weights[held], met.off)


def _raked(constraints: Constraints, codes: Integers, weights: Array) -> RakedRows:
    places = []
    for table in constraints.published:
        columns = tuple(codes[constraints.domain.index(n)] for n in table.names)
        none = np.zeros(codes.shape[1], dtype=np.int64)
        places.append(np.ravel_multi_index(columns, table.values.shape) if columns else none)
    raked = rake(weights, places, [t.values.reshape(-1) for t in constraints.published])
    return RakedRows(codes, raked.weights, raked.off)
