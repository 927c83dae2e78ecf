# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of the documents: ``python docs/make_images.py`` (the noise is new each time).

age-cdf.png     the running totals of age by sex from a release of Adult, with 95% intervals
mechanisms.png  the forecast error of every mechanism on the workload of ``sfumato demo``
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import sfumato as sf
from sfumato.app.shipped import shipped_domain, shipped_table
from sfumato.release.charts import candidates_chart, cdf_band, write_chart

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    """One release at a small budget, where the bands can be seen, and one plan."""
    IMAGES.mkdir(exist_ok=True)
    domain = sf.Domain.from_toml(shipped_domain("demo:adult"))
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])

    small = sf.plan(work, sf.Budget(epsilon=0.1, delta=1e-9))
    result = small.release(shipped_table("demo:adult"))
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


if __name__ == "__main__":
    main()
