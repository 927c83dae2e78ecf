# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.conftest import Ran


def test_drawn_noise_is_said_to_agree_with_the_forecasts(
    folder: Path, run: Callable[..., Ran]
) -> None:
    shown = run("compare", folder / "release.toml").out
    (apart,) = re.findall(r"differ by ([0-9.]+) standard errors", " ".join(shown.split()))
    # 14 draws of a nearly normal law, the same on every run: beyond 5 with probability 1e-5.
    assert 0 < float(apart) < 5


def test_charts_are_written_as_pictures_and_as_a_page_that_loads_nothing(
    folder: Path, run: Callable[..., Ran]
) -> None:
    out = folder / "charts"
    ran = run("compare", folder / "release.toml", "--rows", 10_000, "--out", out)
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
