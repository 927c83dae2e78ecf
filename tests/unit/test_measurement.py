# SPDX-License-Identifier: Apache-2.0
"""The stored form of measurements: every integer back, whatever its size, in whatever parts."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import LedgerError
from sfumato.measurement import Measured, Measurement, Transcript
from sfumato.privacy.noise_laws import BlockNoise

LAW = BlockNoise("gaussian", 70_000, 4)


def measured(*blocks: np.ndarray) -> Measured:
    return Measured(tuple(Measurement(b, LAW) for b in blocks), None)


BLOCKS = {
    "small": (np.arange(5) - 2, np.zeros(0, np.int64), np.array([2**31 - 1, 1 - 2**31])),
    "words": (np.array([2**31]), np.array([-(2**62), 2**62])),
    "beyond words": (np.array([2**70, -5], dtype=object), np.array([1, 2])),
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("at_once", [1, 2, 2**20])
def test_all_integers_come_back(kind, at_once, monkeypatch):
    monkeypatch.setattr("sfumato.measurement.AT_ONCE", at_once)
    blocks = BLOCKS[kind]
    found = Measured.from_bytes(measured(*blocks).to_bytes(), [LAW] * len(blocks))
    assert [m.units.tolist() for m in found.measurements] == [b.tolist() for b in blocks]
    for again, block in zip(found.measurements, blocks, strict=True):
        assert again.values.tolist() == [int(v) / 16 for v in block]


def test_texts_are_no_transcript():
    stored = measured(*BLOCKS["beyond words"]).to_bytes()
    with pytest.raises(LedgerError):
        Transcript.from_bytes(stored)


def test_values_leave_the_integers_as_they_are():
    one = Measurement(np.array([16, -8]), LAW)
    assert one.values.tolist() == [1.0, -0.5]
    assert one.units.tolist() == [16, -8]
