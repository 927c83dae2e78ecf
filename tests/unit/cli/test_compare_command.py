# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Ran

_SEEN: list[tuple[Ran, Path]] = []


@pytest.fixture
def compared(folder: Path, run: Callable[..., Ran]) -> tuple[Ran, Path]:
    """What a comparison said, and where its charts are; run once."""
    if not _SEEN:
        out = folder / "charts"
        _SEEN.append((run("compare", folder / "release.toml", "--rows", 10_000, "--out", out), out))
    return _SEEN[0]


def test_drawn_noise_is_said_to_agree_with_the_forecasts(compared: tuple[Ran, Path]) -> None:
    shown = compared[0].out
    (apart,) = re.findall(r"differ by ([0-9.]+) standard errors", " ".join(shown.split()))
    # 14 draws of a nearly normal law, the same on every run: beyond 5 with probability 1e-5.
    assert 0 < float(apart) < 5


def test_charts_are_written_as_pictures_and_as_a_page_that_loads_nothing(
    compared: tuple[Ran, Path],
) -> None:
    ran, out = compared
    assert ran.code == 0, ran.err
    assert {p.name for p in out.iterdir()} == {
        "compare.html",
        "error-against-k.png",
        "error-against-n.png",
        "error-over-epsilon.png",
        "error-over-rows.png",
        "forecasts.png",
    }
    assert (out / "error-over-rows.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "compare.html").read_text()
    assert "default-src 'none'" in page
    assert "<script src" not in page
    assert "<link" not in page
