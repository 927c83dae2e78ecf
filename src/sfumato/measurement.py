# SPDX-License-Identifier: Apache-2.0
"""Measurements, which are all that leaves the vault: noisy values on a public grid.

`Measured` is what one strategy measured at once, `Transcript` what an adaptive release chose and
measured, in order. Both have an exact byte form that a ledger stores. Everything that is computed
from them is post-processing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from sfumato.digest import canonical_json
from sfumato.errors import LedgerError
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.types import Array, Noise, Numbers

__all__ = [
    "LENGTH_BITS",
    "Length",
    "Measured",
    "Measurement",
    "Step",
    "Transcript",
]


AT_ONCE = 2**20  # values that are written at a time


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
        values = self.units.astype(np.float64)
        return np.ldexp(values, -self.noise.grid_bits, out=values)


LENGTH_BITS = 64
"""Bits after the point of the length of one column, so that weights of long columns are exact."""


@dataclass(frozen=True, slots=True)
class Length:
    """The length of many measured values together, as one number to be measured.

    ``weights`` has what the squares of the values of each block count, in steps of
    ``2^-(2 LENGTH_BITS)``; the length is the root of the sum, ``noise`` the law of its noise.
    """

    weights: tuple[int, ...]
    noise: BlockNoise


@dataclass(frozen=True, eq=False)
class Measured:
    """All measurements of a release; ``rows`` is the number of records where that is public."""

    measurements: tuple[Measurement, ...]
    rows: int | None

    def to_bytes(
        self, about: Mapping[str, object] | None = None, forecast: bytes | None = None
    ) -> bytes:
        """An exact byte form, to be stored before anything is sent.

        ``about`` says what was measured, so that it is never read as something else; ``forecast``
        is a file from which it can be read by who has not planned it.
        """
        units = [m.units for m in self.measurements]
        rows = -1 if self.rows is None else self.rows
        arrays: dict[str, Sequence[Numbers]] = {
            "rows": [np.array([rows], dtype=np.int64)],
            "lengths": [np.array([len(u) for u in units], dtype=np.int64)],
            "units": units,
        }
        if about is not None:
            arrays["about"] = [_numbers(canonical_json(about).encode())]
        if forecast is not None:
            arrays["forecast"] = [_numbers(forecast)]
        return _zipped(**arrays)

    @staticmethod
    def about(stored: bytes) -> dict[str, object] | None:
        """What was measured, where the stored bytes say so."""
        text = _member(stored, "about")
        try:
            return None if text is None else dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise LedgerError("the stored answer of this request cannot be read") from error

    @staticmethod
    def forecast(stored: bytes) -> bytes | None:
        """The file beside it from which it can be read, where there is one."""
        return _member(stored, "forecast")

    @classmethod
    def from_bytes(cls, stored: bytes, noise: Sequence[BlockNoise]) -> Measured:
        """Read the byte form back."""
        arrays = _stored_arrays(stored, ("rows", "lengths", "units"), texts=["units"])
        rows, lengths, units = int(arrays["rows"][0]), arrays["lengths"], _expand(arrays["units"])
        if len(lengths) != len(noise) or lengths.sum() != len(units):
            raise LedgerError(
                "the stored answer of this request does not fit the plan; use the plan that made it"
            )
        blocks = np.split(units, np.cumsum(lengths)[:-1])
        parts = tuple(Measurement(b, n) for b, n in zip(blocks, noise, strict=True))
        return cls(parts, None if rows < 0 else rows)


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
        arrays = _stored_arrays(stored, ("rows", "places", "laws", "lengths", "units"))
        lengths, units = arrays["lengths"], arrays["units"]
        same = len(arrays["places"]) == len(arrays["laws"]) == len(lengths)
        shaped = arrays["places"].ndim == 2 and arrays["laws"].shape[1:] == (3,)
        if not (same and shaped) or lengths.min(initial=0) < 0 or lengths.sum() != units.size:
            raise LedgerError("the stored answer of this request is damaged; restore the ledger")
        parts = np.split(units, np.cumsum(lengths)[:-1]) if lengths.size else []
        steps = []
        for place, (is_laplace, scale, bits), part in zip(
            arrays["places"], arrays["laws"], parts, strict=True
        ):
            kind: Noise = "laplace" if is_laplace else "gaussian"
            law = BlockNoise(kind, int(scale), int(bits))
            named = tuple(int(p) for p in place[1 : 1 + int(place[0])])
            steps.append(Step(named, Measurement(part, law)))
        rows = int(arrays["rows"][0])
        return cls(tuple(steps), None if rows < 0 else rows)


def _numbers(data: bytes) -> Numbers:
    """Bytes as an array."""
    return np.frombuffer(data, dtype=np.uint8).astype(np.int64)


def _member(stored: bytes, name: str) -> bytes | None:
    """The bytes that stand beside noisy values under a name; None where there are none."""
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as file:
            if name not in file.files:
                return None
            return bytes(np.asarray(file[name]).astype(np.uint8))
    except Exception as error:  # zip files and arrays fail in a dozen ways: all mean damage
        raise LedgerError("the stored answer of this request cannot be read") from error


def _stored_arrays(
    stored: bytes, names: Sequence[str], texts: Sequence[str] = ()
) -> dict[str, Numbers]:
    """Integer arrays out of their zipped form; bytes that were never written so are refused.

    Those named in ``texts`` may hold integers beyond 64 bits, as texts.
    """
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in names}
    except Exception as error:  # zip files and arrays fail in a dozen ways: all mean damage
        raise LedgerError("the stored answer of this request cannot be read") from error
    kinds = {name: "iuU" if name in texts else "iu" for name in names}
    if (
        any(a.dtype.kind not in kinds[name] or not a.ndim for name, a in arrays.items())
        or not arrays["rows"].size
    ):
        raise LedgerError("the stored answer of this request is damaged; restore the ledger")
    return arrays


def _zipped(**arrays: Sequence[Numbers]) -> bytes:
    """Return arrays as ``numpy.savez_compressed``, at the quickest level: noise hardly shrinks.

    An array is given in parts, which are joined as they are written, never in memory.
    """
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED, compresslevel=1) as file:
        for name, parts in arrays.items():
            kind = _narrowest(parts)
            length = sum(len(p) for p in parts)
            with file.open(f"{name}.npy", "w", force_zip64=True) as written:
                descr = np.lib.format.dtype_to_descr(kind)
                header = {"descr": descr, "fortran_order": False, "shape": (length,)}
                np.lib.format.write_array_header_1_0(written, header)
                for part in parts:
                    for start in range(0, len(part), AT_ONCE):
                        written.write(part[start : start + AT_ONCE].astype(kind).tobytes())
    return out.getvalue()


def _narrowest(parts: Sequence[Numbers]) -> np.dtype[Any]:
    """int32 where all numbers fit, texts of one length for Python integers."""
    if any(p.dtype.kind == "O" for p in parts):
        return np.dtype(f"<U{max(len(str(v)) for p in parts for v in p)}")
    fits = all(p.min(initial=0) > -(2**31) and p.max(initial=0) < 2**31 for p in parts)
    return np.dtype(np.int32 if fits else np.int64)


def _expand(units: Numbers) -> Numbers:
    if units.dtype.kind == "U":
        return np.array([int(v) for v in units], dtype=object)
    return units
