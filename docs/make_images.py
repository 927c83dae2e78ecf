# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of the documents: ``python docs/make_images.py`` (the noise is new each time).

age-cdf.png     the running totals of age by sex from a release of Adult, with 95% intervals
mechanisms.png  the forecast error of every mechanism on the workload of ``sfumato demo``
approximate.png worst error against the allowed bias, for prefixes and for wide conjunctions

and one figure for every mechanism page, from ``docs/figures.py``; ``python docs/make_images.py
streams widths`` draws only those that are named. ``python docs/make_images.py audit`` runs the fast
audit, which takes some minutes, and draws audit.png and audit-curves.png. ``python
docs/make_images.py house`` draws the rooms of the source and two ways through them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from math import comb, hypot, sqrt
from pathlib import Path

import numpy as np

import sfumato as sf
from sfumato.release.charts import candidates_chart, cdf_band, error_against_alpha, write_chart

sys.path.insert(0, str(Path(__file__).parent))
from figures import FIGURES

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    """One release at a small budget, where the bands can be seen, and one plan."""
    IMAGES.mkdir(exist_ok=True)
    table, domain = sf.example("adult")
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])

    small = sf.plan(work, sf.Budget(epsilon=0.1, delta=1e-9))
    result = small.release(table)
    ages = result.answers(group="prefix age by sex")
    picture = cdf_band(ages, "age", "sex").properties(
        title=f"Age by sex, with 95% intervals: {len(ages)} of {len(work):,} answers, epsilon = 0.1"
    )
    write_chart(picture, IMAGES / "age-cdf.png")
    pack(IMAGES / "age-cdf.png")

    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    picture = candidates_chart(plan.candidates).properties(
        title=f"{len(work):,} queries at epsilon = 1, delta = 1e-9"
    )
    write_chart(picture, IMAGES / "mechanisms.png")
    pack(IMAGES / "mechanisms.png")
    approximate()


def approximate() -> None:
    """Two panels: every prefix of 32 cells, and all conjunctions of 8 of 16 yes/no attributes.

    A curve is a number of records times the privacy loss mu; without data its noise is
    1 / (mu n) at unit sensitivity.
    """
    alphas = [*np.geomspace(0.001, 1, 25).tolist()]
    prefixes = np.tril(np.ones((32, 32)))
    cumulative = {
        f"mu n = {s}": sf.study.trade_off(prefixes, s**-2.0, [0.0, *alphas], 3e-3)
        for s in (3, 10, 30, 100)
    }
    costs = np.array([sqrt(comb(16, i) * comb(8, i)) for i in range(9)])
    wide = {}
    for s in (3, 10, 30, 100):
        found = [(a, sf.study.least_cost(8, costs, a)) for a in [0.0, *alphas]]
        wide[f"mu n = {s}"] = [
            (a, hypot(a, sf.study.gamma_of(16, 8, c) / s)) for a, c in found if c is not None
        ]
    left = error_against_alpha(cumulative, width=300).properties(title="prefixes of 32 cells")
    right = error_against_alpha(wide, width=300).properties(title="conjunctions of 8 of 16")
    write_chart(left | right, IMAGES / "approximate.png")
    pack(IMAGES / "approximate.png")


def pack(path: Path) -> None:
    """The same picture with its pixels compressed as far as zlib goes: a quarter of the size."""
    data, at = path.read_bytes(), 8
    parts: list[tuple[bytes, bytes]] = []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        parts.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    head = [part for part in parts if part[0] not in (b"IDAT", b"IEND")]
    out = data[:8]
    for kind, body in (*head, (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b"")):
        out += struct.pack(">I", len(body)) + kind + body
        out += struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(out)


def audit() -> None:
    """What the fast audit proves, beside what is claimed."""
    from sfumato_audit.command import claims_chart, curves_chart
    from sfumato_audit.registry import audit as examined
    from sfumato_audit.registry import subjects

    found = examined(subjects())
    for name, chart in {"audit": claims_chart(found), "audit-curves": curves_chart(found)}.items():
        write_chart(chart, IMAGES / f"{name}.png")
        pack(IMAGES / f"{name}.png")


def house() -> None:
    """The rooms of the source, and what a release and a question visit."""
    from house_images import pictures

    for name, picture in pictures().items():
        (IMAGES / f"{name}.svg").write_text(picture.svg())


def figures(names: list[str]) -> None:
    """The figures of the mechanism pages, all or those that are named."""
    for name in names or FIGURES:
        print(name, flush=True)
        write_chart(FIGURES[name](), IMAGES / f"{name}.png")
        pack(IMAGES / f"{name}.png")


if __name__ == "__main__":
    names = sys.argv[1:]
    if not names:
        main()
    for alone in (audit, house):
        if alone.__name__ in names:
            alone()
    rest = [name for name in names if name not in ("audit", "house")]
    if rest or not names:
        figures(rest)
