# SPDX-License-Identifier: Apache-2.0
"""What an adaptive release measured, in order: the public record that everything is made from."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from sfumato.errors import LedgerError
from sfumato.plan.calibrate import BlockNoise
from sfumato.plan.strategy import Noise
from sfumato.refine.measurement import Measurement, stored_arrays

__all__ = ["Step", "Transcript"]

_ARRAYS = ("rows", "places", "laws", "lengths", "units")


@dataclass(frozen=True, eq=False)
class Step:
    """One measurement; ``place`` says of what: attribute numbers, or a group and a query."""

    place: tuple[int, ...]
    measurement: Measurement


@dataclass(frozen=True, eq=False)
class Transcript:
    """All steps of a release; ``rows`` is the number of records where that is public.

    Privacy: public by the guarantee of the steps; what was chosen is part of it.
    """

    steps: tuple[Step, ...]
    rows: int | None

    def to_bytes(self) -> bytes:
        """An exact byte form, to be stored before anything is sent."""
        width = max((len(s.place) for s in self.steps), default=0)
        places = np.full((len(self.steps), width + 1), -1, dtype=np.int64)
        laws = np.zeros((len(self.steps), 3), dtype=np.int64)
        for i, step in enumerate(self.steps):
            places[i, 0] = len(step.place)
            places[i, 1 : 1 + len(step.place)] = step.place
            law = step.measurement.noise
            laws[i] = (int(law.noise == "laplace"), law.units, law.grid_bits)
        units = [np.asarray(s.measurement.units, dtype=np.int64) for s in self.steps]
        out = io.BytesIO()
        np.savez_compressed(
            out,
            rows=np.array([-1 if self.rows is None else self.rows], dtype=np.int64),
            places=places,
            laws=laws,
            lengths=np.array([u.size for u in units], dtype=np.int64),
            units=np.concatenate([np.zeros(0, np.int64), *units]),
        )
        return out.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Transcript:
        """Read the byte form back."""
        found = stored_arrays(stored, ("rows", "places", "laws", "lengths", "units"))
        lengths, units = found["lengths"], found["units"]
        same = len(found["places"]) == len(found["laws"]) == len(lengths)
        shaped = found["places"].ndim == 2 and found["laws"].shape[1:] == (3,)
        if not (same and shaped) or lengths.min(initial=0) < 0 or lengths.sum() != units.size:
            raise LedgerError("the stored answer of this request is damaged; restore the ledger")
        parts = np.split(units, np.cumsum(lengths)[:-1]) if lengths.size else []
        steps = []
        for place, (is_laplace, scale, bits), part in zip(
            found["places"], found["laws"], parts, strict=True
        ):
            kind: Noise = "laplace" if is_laplace else "gaussian"
            law = BlockNoise(kind, int(scale), int(bits))
            named = tuple(int(p) for p in place[1 : 1 + int(place[0])])
            steps.append(Step(named, Measurement(part, law)))
        rows = int(found["rows"][0])
        return cls(tuple(steps), None if rows < 0 else rows)
