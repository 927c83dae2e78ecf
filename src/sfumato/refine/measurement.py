# SPDX-License-Identifier: Apache-2.0
"""What leaves the vault: noisy values on a public grid. Everything after it is post-processing."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from sfumato.errors import LedgerError
from sfumato.plan.calibrate import BlockNoise
from sfumato.workload.queries import Array, Numbers

__all__ = ["Measured", "Measurement", "stored_arrays"]


@dataclass(frozen=True, eq=False)
class Measurement:
    """The noisy values of one block: integers, in steps of ``2^-grid_bits``.

    Privacy: public by the guarantee of the mechanism that made it; any function of it is too
    (post-processing: Dwork, Roth 2014, Proposition 2.1).
    """

    units: Numbers
    noise: BlockNoise

    @property
    def values(self) -> Array:
        """The noisy values, in counts."""
        return np.ldexp(self.units.astype(np.float64), -self.noise.grid_bits)


@dataclass(frozen=True, eq=False)
class Measured:
    """All measurements of a release; ``rows`` is the number of records where that is public."""

    measurements: tuple[Measurement, ...]
    rows: int | None

    def to_bytes(self) -> bytes:
        """An exact byte form, to be stored before anything is sent."""
        units = [m.units for m in self.measurements]
        rows = -1 if self.rows is None else self.rows
        return _zipped(
            rows=np.array([rows], dtype=np.int64),
            lengths=np.array([len(u) for u in units], dtype=np.int64),
            units=_compact(np.concatenate(units)),
        )

    @classmethod
    def from_bytes(cls, stored: bytes, noise: Sequence[BlockNoise]) -> Measured:
        """Read the byte form back."""
        found = stored_arrays(stored, ("rows", "lengths", "units"))
        rows, lengths, units = int(found["rows"][0]), found["lengths"], _expand(found["units"])
        if len(lengths) != len(noise) or lengths.sum() != len(units):
            raise LedgerError(
                "the stored answer of this request does not fit the plan; use the plan that made it"
            )
        blocks = np.split(units, np.cumsum(lengths)[:-1])
        parts = tuple(Measurement(b, n) for b, n in zip(blocks, noise, strict=True))
        return cls(parts, None if rows < 0 else rows)


def stored_arrays(stored: bytes, names: Sequence[str]) -> dict[str, Numbers]:
    """Integer arrays out of their zipped form; bytes that were never written so are refused."""
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as file:
            found = {name: file[name] for name in names}
    except Exception as error:  # zip files and arrays fail in a dozen ways: all mean damage
        raise LedgerError("the stored answer of this request cannot be read") from error
    if (
        any(a.dtype.kind not in "iu" or not a.ndim for a in found.values())
        or not found["rows"].size
    ):
        raise LedgerError("the stored answer of this request is damaged; restore the ledger")
    return found


def _zipped(**arrays: Numbers) -> bytes:
    """As ``numpy.savez_compressed``, at the quickest level: noise does not shrink by trying."""
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, array, allow_pickle=False)
    return out.getvalue()


def _compact(units: Numbers) -> Numbers:
    """int32 where it fits; Python integers as text."""
    if units.dtype.kind == "O":
        return np.array([str(v) for v in units])
    fits = bool((np.abs(units) < 2**31).all())
    return units.astype(np.int32) if fits else units


def _expand(units: Numbers) -> Numbers:
    if units.dtype.kind == "U":
        return np.array([int(v) for v in units], dtype=object)
    return units.astype(np.int64)
