# SPDX-License-Identifier: Apache-2.0
"""The private side of a stream: `PrivateStream.measure` returns each step with noise on a grid.

At step t the vault computes ``(M x)_t``, M lower triangular, from a small exact state, rounds it to
the public grid where M is not a matrix of whole numbers, and adds noise that is exact on the grid.
Only that leaves. The state shows itself to nobody, is never copied or pickled, and refuses to go
on in a forked child: two continuations of one state would measure the same values twice.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from sfumato.errors import SfumatoError
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource, system_words
from sfumato.strategy.one_attribute.stream_filters import VALUE_BITS, Filter, TimeTree, encode
from sfumato.vault.count import Redacted
from sfumato.vault.mechanisms.noise import block_noise
from sfumato.vault.vault_limits import LIMITS

__all__ = ["MeasuredStream", "PrivateStream"]


Advanced: TypeAlias = tuple[list[int], Callable[[], None]]


class MeasuredStream(Protocol):
    """What a stream measures at every step, with which noise, for how many steps; public."""

    @property
    def shape(self) -> Filter | TimeTree:
        """The measured matrix M."""
        ...

    @property
    def noise(self) -> BlockNoise:
        """The noise of every measured value."""
        ...

    @property
    def length(self) -> int:
        """The number of steps."""
        ...


class PrivateStream(Redacted):
    """What the vault must remember of a stream, for every coordinate: never shown."""

    __slots__ = ("_noise", "_owner", "_plan", "_random", "_states", "_step")

    def __init__(
        self, plan: MeasuredStream, coordinates: int, random: WordSource | None = None
    ) -> None:
        self._plan = plan
        self._random = system_words() if random is None else random
        self._noise: deque[int] = deque()
        self._owner = os.getpid()
        self._step = 0
        self._states = [_start(plan.shape) for _ in range(coordinates)]

    def measure(self, values: Sequence[int]) -> list[list[int]]:
        """Measure ``(M x)_t + z`` for every coordinate; integers in steps of the noise grid.

        A filter measures one value per step, a tree the nodes that end with the step, lowest level
        first. If anything fails, the state is as before and nothing was measured.

        Privacy: all steps together are mu-GDP or epsilon-DP with the plan's cost, also when values
        depend on what was measured before: docs/proofs/streams.md, Theorems 1 and 2.
        Neighbours: the plan's: a person adds at most ``largest`` to one value of one coordinate.
        """
        if os.getpid() != self._owner:
            raise SfumatoError(
                "this process is a fork of the one that opened the stream: going on in both would "
                "measure the same values twice; open a new stream here"
            )
        advanced = [
            state.advanced(self._plan, self._step, value)
            for state, value in zip(self._states, values, strict=True)
        ]
        noise = self._draw(sum(len(exact) for exact, _ in advanced))
        noisy = [[value + next(noise) for value in exact] for exact, _ in advanced]
        self._step += 1  # first: whoever is interrupted below can see that a step was begun
        for _, keep in advanced:
            keep()
        return noisy

    @property
    def step(self) -> int:
        """How many steps were measured; public."""
        return self._step

    def _draw(self, count: int) -> Iterator[int]:
        """The next ``count`` noise values, from blocks drawn ahead."""
        if len(self._noise) < count:
            left = max(self._plan.length - self._step, 1) * len(self._states)
            size = max(count, min(LIMITS.steps_ahead * len(self._states), left))
            self._noise.extend(block_noise(self._plan.noise, size, self._random).tolist())
        return iter([self._noise.popleft() for _ in range(count)])


class _FilterState(Redacted):
    """Memories, echoes and, for windows, the values that will leave them."""

    __slots__ = ("_echoes", "_memories", "_recent")

    def __init__(self, shape: Filter) -> None:
        width = shape.width or 0
        echoes = 0 if shape.echo is None else shape.echo.size
        self._memories = [0] * shape.banks[0].size
        self._echoes = [[0] * echoes for _ in range(max(width, 1))]
        self._recent = [0] * width

    def advanced(self, plan: MeasuredStream, step: int, value: int) -> Advanced:
        """``(M x)_t`` rounded to the grid, and how to make the state after it the present one."""
        shape = plan.shape
        assert isinstance(shape, Filter)  # noqa: S101
        place = step % len(self._echoes)
        gone = self._recent[place] if self._recent else 0
        memories, echo, exact = encode(
            shape, step, self._memories, self._echoes[place], value - gone
        )
        shift = VALUE_BITS - plan.noise.grid_bits
        rounded = (exact + (1 << (shift - 1))) >> shift

        def keep() -> None:
            self._memories, self._echoes[place] = memories, echo
            if self._recent:
                self._recent[place] = value

        return [rounded], keep


class _TreeState(Redacted):
    """The sums of the nodes that are still open, one per level."""

    __slots__ = ("_open",)

    def __init__(self, shape: TimeTree) -> None:
        self._open = [0] * shape.levels

    def advanced(self, plan: MeasuredStream, step: int, value: int) -> Advanced:
        """The sums of the nodes that end with a value, on the grid; and how to go on from there."""
        shape = plan.shape
        assert isinstance(shape, TimeTree)  # noqa: S101
        ended = shape.completed(step + 1)
        sums = [total + value for total in self._open]

        def keep() -> None:
            self._open = [0] * ended + sums[ended:]

        return [total << plan.noise.grid_bits for total in sums[:ended]], keep


def _start(shape: Filter | TimeTree) -> _FilterState | _TreeState:
    return _TreeState(shape) if isinstance(shape, TimeTree) else _FilterState(shape)
