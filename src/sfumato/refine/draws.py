# SPDX-License-Identifier: Apache-2.0
"""Public draws of the noise that a planned strategy will have, in its answers or as measured.

The draws themselves (``Draws``) are those of ``planning/public_draws.py``: repeatable, and nothing
that protects data can be fed from them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sfumato.planning.forecast import Forecast
from sfumato.planning.public_draws import Draws
from sfumato.types import Array

__all__ = [
    "Draws",
    "drawn_noise",
    "drawn_values",
]


def drawn_noise(forecast: Forecast, source: Draws, count: int) -> Iterator[Array]:
    """Public draws of the noise of all answers, ``count`` times."""
    for _ in range(count):
        yield np.concatenate(list(forecast.strategy.answers(drawn_values(forecast, source))))


def drawn_values(forecast: Forecast, source: Draws) -> list[Array]:
    """A public draw of the noise of all measured values, block by block."""
    values = []
    for rows, noise in zip(forecast.strategy.block_rows, forecast.noise, strict=True):
        drawn = source.normals(rows) if noise.noise == "gaussian" else source.laplaces(rows)
        values.append(drawn * noise.scale)
    return values
