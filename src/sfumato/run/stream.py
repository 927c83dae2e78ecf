# SPDX-License-Identifier: Apache-2.0
"""Counting as it happens: values arrive one at a time, running totals leave with noise.

    stream = sf.Stream(365, sf.Budget(epsilon=1, delta=1e-9), many=True)
    for admitted in days:
        print(stream.add(admitted), "+-", stream.standard_error())

The whole stream is paid for at once, before its first value. Exact values stay in the vault
(`vault/mechanisms/stream_noise.py`); what leaves is measured, and a `Follower` turns it into
totals: ``R y`` step by step. R is lower triangular, so that the answer after step t needs measured
values up to t only, and a small state holds all of them that still matters. Mathematics:
docs/mechanisms/streams.md. Proof: docs/proofs/streams.md.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ldexp
from operator import index
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sfumato.errors import PlanError, SfumatoError, TableError, TooLarge
from sfumato.planning.stream_plans import StreamForecast, forecast_stream
from sfumato.privacy.budget import Budget, Guarantee
from sfumato.random import system_words
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, Lasting, begin, opened
from sfumato.strategy.one_attribute.stream_filters import STATE_BITS, Filter, TimeTree, decode
from sfumato.types import Array, Neighbours
from sfumato.vault.mechanisms.stream_noise import PrivateStream

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger

__all__ = ["Follower", "Stream", "StreamPlan", "follower", "plan_stream"]


# The public side of a stream: measured values in, running totals or window sums out


class FilterFollower:
    """The memories of a filter, fed with measured values instead of exact ones."""

    def __init__(self, plan: StreamForecast, shape: Filter) -> None:
        self._shape, self._grid_bits = shape, plan.noise.grid_bits
        echoes = 0 if shape.echo is None else shape.echo.size
        self._memories = [0] * shape.banks[0].size
        self._echoes = [[0] * echoes for _ in range(shape.width or 1)]
        self._step = 0

    def answer(self, measured: list[int]) -> float:
        """The next answer, unbiased, in counts."""
        place = self._step % len(self._echoes)
        self._memories, self._echoes[place], total = decode(
            self._shape,
            self._step,
            self._memories,
            self._echoes[place],
            measured[0],
            self._grid_bits,
        )
        self._step += 1
        return total / (1 << STATE_BITS)  # correctly rounded

    @property
    def state_size(self) -> int:
        """How many numbers are kept."""
        return len(self._memories) + sum(map(len, self._echoes))


class TotalsFollower:
    """A tree for running totals: per level, the nodes since the next larger one ended."""

    def __init__(self, plan: StreamForecast, shape: TimeTree) -> None:
        self._grid_bits = plan.noise.grid_bits
        self._sums = [0] * shape.levels

    def answer(self, measured: list[int]) -> float:
        """The next answer: a node that ended replaces the smaller nodes within it."""
        highest = len(measured) - 1
        self._sums[:highest] = [0] * highest
        self._sums[highest] += measured[highest]
        return ldexp(sum(self._sums), -self._grid_bits)

    @property
    def state_size(self) -> int:
        """How many numbers are kept."""
        return len(self._sums)


class WindowsFollower:
    """A tree for windows: the last nodes of every level, as many as a window may need."""

    def __init__(self, plan: StreamForecast, shape: TimeTree) -> None:
        self._shape, self._grid_bits = shape, plan.noise.grid_bits
        width = shape.width or shape.length
        sizes = [shape.branching**level for level in range(shape.levels)]
        self._nodes: list[deque[int]] = [deque(maxlen=width // size + 1) for size in sizes]
        self._ended = [0] * shape.levels
        self._step = 0

    def answer(self, measured: list[int]) -> float:
        """The next answer: the fewest nodes that tile the window."""
        self._step += 1
        for level, value in enumerate(measured):
            self._nodes[level].append(value)
            self._ended[level] += 1
        total = 0
        for level, first, count in self._shape.tiles(self._step):
            nodes = self._nodes[level]
            oldest = self._ended[level] - len(nodes)
            total += sum(nodes[first - oldest + i] for i in range(count))
        return ldexp(total, -self._grid_bits)

    @property
    def state_size(self) -> int:
        """How many numbers are kept, at most."""
        return len(self._ended) + sum(nodes.maxlen or 0 for nodes in self._nodes)


Follower = FilterFollower | TotalsFollower | WindowsFollower


def follower(plan: StreamForecast) -> Follower:
    """The public state of one coordinate before its first step."""
    if isinstance(plan.shape, Filter):
        return FilterFollower(plan, plan.shape)
    return (TotalsFollower if plan.width is None else WindowsFollower)(plan, plan.shape)


@dataclass(frozen=True, eq=False, repr=False)
class StreamPlan(Lasting):
    """Streams that can be started: how they will be answered, and how well.

    Args:
        forecast: The strategy with its noise and the errors of every step.
        names: The names of the streams.
        most: The largest value of a step.
        is_scalar: Whether a step brings a number and not a list.
    """

    forecast: StreamForecast
    names: tuple[str, ...]
    most: int
    is_scalar: bool

    def __repr__(self) -> str:
        return repr(self.forecast) if self.is_scalar else f"{len(self.names):,} x {self.forecast!r}"

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to who contributes to one value of one stream."""
        return Guarantee(self.forecast.budget, self.forecast.neighbours, "event")

    def start(
        self, ledger: Ledger | str | Path | None = None, *, name: str = "stream", keep: bool = True
    ) -> Stream:
        """Pay for the streams and start them.

        Args:
            ledger: What is debited, all at once; every stream is a request of its own.
            name: What the ledger calls the streams, unless it is given open.
            keep: Whether answers are remembered, for `Stream.released` and for the ledger.

        Returns:
            A stream before its first value.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
        """
        stream = Stream.__new__(Stream)
        stream._start(self, ledger, name, keep)
        return stream


def plan_stream(
    length: int,
    budget: Budget,
    strategy: str | None = None,
    *,
    dimensions: int | Sequence[str] = 1,
    largest: int = 1,
    many: bool = False,
    window: int | None = None,
    neighbours: Neighbours = "add-remove",
) -> StreamPlan:
    """Plan noisy running totals of a stream; touches no data and costs nothing.

    Args:
        length: The most values that may come.
        budget: What all answers ever given may spend together.
        strategy: ``"optimal"``, ``"toeplitz"``, ``"tree"`` or ``"laplace-tree"``; None for the
            least forecast error.
        dimensions: A number of streams, or their names: every step brings one value for each.
        largest: The most that one person adds to one value.
        many: Whether a value is a sum over people, who each add at most ``largest``.
        window: Answer sums of so many last values, not of all.
        neighbours: What two streams differ in.

    Returns:
        A plan, whose ``start`` makes a `Stream`.

    Raises:
        PlanError: An argument is wrong.
        TooLarge: The streams need too many numbers.

    >>> import sfumato as sf
    >>> sf.plan_stream(100, sf.Budget(mu=1)).forecast.strategy
    'optimal'
    """
    names, is_scalar = _names(dimensions)
    forecast = forecast_stream(
        length, budget, width=window, strategy=strategy, largest=largest, neighbours=neighbours
    )
    if forecast.state_size * len(names) > LIMITS.stream_numbers:
        raise TooLarge(
            f"{len(names):,} streams of {forecast.state_size:,} numbers each are more "
            f"than {LIMITS.stream_numbers:,}; use fewer dimensions, or a shorter window"
        )
    return StreamPlan(forecast, names, LIMITS.count_maximum - 1 if many else largest, is_scalar)


class Stream:
    """Noisy running totals, or sums of the last ``window`` values, of a stream of whole numbers.

    Privacy: everything a stream ever answers is within ``budget`` together, also when later values
    depend on earlier answers (docs/proofs/streams.md).
    Neighbours: one person contributes to one value of one stream, at most ``largest``. By default
    a value belongs to one person and must lie in 0 to ``largest``; with ``many`` it is a sum over
    people, and that each of them adds at most ``largest`` is the caller's promise.

    Args:
        length: The most values that may come.
        budget: What all answers ever given may spend together.
        strategy: ``"optimal"``, ``"toeplitz"``, ``"tree"`` or ``"laplace-tree"``; None for the
            least forecast error.
        dimensions: A number of streams, or their names (one per hospital): every step brings one
            value for each.
        largest: The most that one person adds to one value.
        many: Whether a value is a sum over people, who each add at most ``largest``.
        window: Answer sums of so many last values, not of all.
        neighbours: What two streams differ in.
        ledger: What is debited, all at once; every stream is a request of its own.
        name: What the ledger calls the streams, unless it is given open.
        keep: Whether answers are remembered, for `released` and for the ledger.

    Raises:
        PlanError: An argument is wrong.
        TooLarge: The streams need too many numbers.
        BudgetExhausted: The cost does not fit what is left.

    >>> import sfumato as sf
    >>> stream = sf.Stream(100, sf.Budget(mu=1))
    >>> total = stream.add(1)
    >>> stream
    Stream(step 1 of 100: optimal at mu = 1, typical error 2.24)
    """

    def __init__(
        self,
        length: int,
        budget: Budget,
        strategy: str | None = None,
        *,
        dimensions: int | Sequence[str] = 1,
        largest: int = 1,
        many: bool = False,
        window: int | None = None,
        neighbours: Neighbours = "add-remove",
        ledger: Ledger | str | Path | None = None,
        name: str = "stream",
        keep: bool = True,
    ) -> None:
        plan = plan_stream(
            length,
            budget,
            strategy,
            dimensions=dimensions,
            largest=largest,
            many=many,
            window=window,
            neighbours=neighbours,
        )
        self._start(plan, ledger, name, keep)

    def _start(
        self, plan: StreamPlan, ledger: Ledger | str | Path | None, name: str, keep: bool
    ) -> None:
        self._plan, self._names, self._is_scalar = plan.forecast, plan.names, plan.is_scalar
        self._most = plan.most
        # What can fail for want of memory comes before the debit, all noise after it.
        self._private: PrivateStream | None = PrivateStream(self._plan, len(self._names))
        self._public = [follower(self._plan) for _ in self._names]
        self._ledger, self._entry = _debited(plan, ledger, name)
        self._released: list[list[float]] | None = [] if keep else None
        self._step = 0
        self._last = [0.0] * len(self._names)
        self._lock = Lock()

    @property
    def forecast(self) -> StreamForecast:
        """The plan: strategy, noise, errors of every step, certificate, the other strategies."""
        return self._plan

    @property
    def step(self) -> int:
        """How many values have come."""
        return self._step

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return self._names

    @property
    def total(self) -> float | Array:
        """The last answer (0 before the first value)."""
        return self._shown(self._last)

    @property
    def state_size(self) -> int:
        """How many numbers are kept from step to step, per stream, whatever the length."""
        return self._plan.state_size

    def add(self, value: object) -> float | Array:
        """Take the next value and answer: the noisy total of all values (or of the window).

        Args:
            value: A whole number; with several dimensions a sequence in their order, or a mapping
                from their names.

        Returns:
            The noisy total after it, one number per dimension.

        Raises:
            TableError: The value is none of these, or out of range; nothing changes.
            PlanError: The stream is closed or at its end.
        """
        return self._shown(self._added([self._checked(value)])[0])

    def add_many(self, values: Sequence[object] | Array) -> Array:
        """Take the next values, a row per step, and answer every step.

        All are checked before the first is taken.

        Args:
            values: One value per step, as in `add`.

        Returns:
            The noisy total after every step, one row each.

        Raises:
            TableError: A value is out of range; nothing changes.
            PlanError: The stream is closed, or they do not fit.
        """
        rows = [self._checked(value) for value in values]
        answers = np.array(self._added(rows), dtype=np.float64).reshape(len(rows), -1)
        return answers[:, 0] if self._is_scalar else answers

    def standard_error(self, step: int | None = None) -> float:
        """The standard error of the answer after ``step`` (the last one if not given).

        Args:
            step: A step, from 1; None for the last one.

        Returns:
            The standard error, in counts.

        Raises:
            PlanError: There is no such step.
        """
        at = max(self._step, 1) if step is None else step
        if isinstance(at, bool) or not isinstance(at, int) or not 1 <= at <= self._plan.length:
            raise PlanError(f"steps are 1 to {self._plan.length:,}, got {step!r}")
        return float(self._plan.standard_errors[at - 1])

    def released(self) -> pd.DataFrame:
        """What was released: a row per step with its answers and their standard error.

        Returns:
            One row per step.

        Raises:
            PlanError: Answers were not to be kept.
        """
        import pandas as pd

        if self._released is None:
            raise PlanError("the counter was made with keep=False: answers were not kept")
        columns = ["total"] if self._is_scalar else list(self._names)
        frame = pd.DataFrame(self._released, columns=columns, dtype=np.float64)
        frame.insert(0, "step", np.arange(1, len(frame) + 1))
        frame["standard_error"] = self._plan.standard_errors[: len(frame)]
        return frame

    def close(self) -> None:
        """End the stream: forget the exact state, and store the answers in the ledger."""
        with self._lock:
            if self._private is None:
                return
            self._private = None
            if self._ledger is not None and self._entry is not None:
                released = {"steps": self._step, "names": self._names, "answers": self._released}
                self._ledger.store(self._entry, json.dumps(released).encode())

    def _added(self, rows: list[list[int]]) -> list[list[float]]:
        with self._lock:
            if self._private is None:
                raise PlanError("the counter is closed; make a new one")
            left = self._plan.length - self._step
            if len(rows) > left:
                raise PlanError(
                    f"{len(rows):,} more values do not fit: {self._step:,} of "
                    f"{self._plan.length:,} steps are used; a longer stream needs its own counter"
                )
            try:
                return [self._stepped(self._private, row) for row in rows]
            except BaseException:
                # Interrupted within a step: its value is counted and its answer is lost.
                if self._private.step != self._step:
                    self._private = None
                raise

    def _stepped(self, private: PrivateStream, row: list[int]) -> list[float]:
        measured = private.measure(row)
        answers = [public.answer(m) for public, m in zip(self._public, measured, strict=True)]
        if self._released is not None:
            self._released.append(answers)
        self._last = answers
        self._step += 1
        return answers

    def _checked(self, value: object) -> list[int]:
        """The values of one step as integers; messages never hold them."""
        if self._is_scalar:
            values = [value]
        elif isinstance(value, Mapping):
            if set(value) != set(self._names):
                raise TableError(
                    f"a step needs exactly the names {', '.join(self._names[:8])}"
                    f"{', ...' if len(self._names) > 8 else ''}"
                )
            values = [value[n] for n in self._names]
        else:
            values = list(value) if isinstance(value, Sequence | np.ndarray) else []
            if len(values) != len(self._names) or isinstance(value, str):
                raise TableError(
                    f"a step needs {len(self._names):,} values, one per dimension; give a sequence "
                    "in their order, or a mapping from their names"
                )
        whole = [_whole(v) for v in values]
        if any(v is None or not 0 <= v <= self._most for v in whole):
            raise TableError(
                f"a value is not a whole number from 0 to {self._most:,}; nothing was counted. "
                "Clip values before adding them, raise `largest` (more noise), or say many=True if "
                "a value is a sum over people"
            )
        return [v for v in whole if v is not None]

    def _shown(self, answers: list[float]) -> float | Array:
        return answers[0] if self._is_scalar else np.array(answers)

    def __repr__(self) -> str:
        kind = "" if self._plan.width is None else f", last {self._plan.width:,} values"
        streams = "" if self._is_scalar else f", {len(self._names):,} streams"
        return (
            f"Stream(step {self._step:,} of {self._plan.length:,}{kind}{streams}: "
            f"{self._plan.strategy} at {self._plan.budget.describe()}, typical error "
            f"{self._plan.rmse:,.2f})"
        )

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SfumatoError(
            "a counter holds exact values and cannot be copied or pickled: two copies would "
            "measure the same values twice. Save counter.released(), which is public, and go on "
            "with a new counter for the values to come"
        )


def _names(dimensions: object) -> tuple[tuple[str, ...], bool]:
    if isinstance(dimensions, int) and not isinstance(dimensions, bool) and dimensions >= 1:
        if dimensions > LIMITS.streams_maximum:
            raise TooLarge(
                f"{dimensions:,} dimensions are more than {LIMITS.streams_maximum:,}; use fewer"
            )
        return tuple(str(i) for i in range(dimensions)), dimensions == 1
    is_list = isinstance(dimensions, Sequence) and not isinstance(dimensions, str)
    names = tuple(dimensions) if isinstance(dimensions, Sequence) and is_list else ()
    are_words = all(isinstance(n, str) and n not in ("", "step", "standard_error") for n in names)
    if names and are_words and len(set(names)) == len(names):
        return names, False
    raise PlanError(
        "dimensions must be a whole number of at least 1 or a list of distinct names (other than "
        f"step and standard_error), got {type(dimensions).__name__}"
    )


def _whole(value: object) -> int | None:
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _debited(
    plan: StreamPlan, ledger: Ledger | str | Path | None, name: str
) -> tuple[Ledger | None, Entry | None]:
    """Debit the whole stream; every stream is a request of its own, so its key is fresh."""
    from sfumato.ledger.ledger import Ledger

    # An open ledger is that of the stream, whatever it is called there.
    name = ledger.table_id if isinstance(ledger, Ledger) else name
    forecast = plan.forecast
    _, record = opened(Access(None, ledger, name), None, plan.guarantee)
    if record is None:
        return None, None
    fresh = int(system_words().words(1)[0])
    key = f"stream {forecast.digest()[:16]} {fresh:016x}"
    entry, _ = begin(
        plan, record, forecast.cost, forecast.request(), key, lambda _: (None, None, ())
    )
    return record, entry
