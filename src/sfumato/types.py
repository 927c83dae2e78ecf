# SPDX-License-Identifier: Apache-2.0
"""Types that several rooms share: arrays, names of attributes, reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "Integers",
    "Mask",
    "Names",
    "Neighbours",
    "Noise",
    "Numbers",
    "Objective",
    "Progress",
    "SearchProgress",
]


Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]  # integers (exact) or floats

Names = tuple[str, ...]  # attributes, in the order of a table's axes

# Which two tables must be hard to tell apart: one row more or less, or one row replaced.
Neighbours = Literal["add-remove", "replace-one"]
Noise = Literal["gaussian", "laplace"]
Objective = Literal["rmse", "max"]

Progress = Callable[[int, int, str], None]  # steps done, steps in all, what is done
SearchProgress = Callable[[int, float], None]  # steps done, how far from the optimum at most
