# SPDX-License-Identifier: Apache-2.0
"""The pictures of an audit: bounds beside claims, and (epsilon, delta) curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

    from sfumato_audit.examine import Finding

__all__ = [
    "claims_chart",
    "curves_chart",
]


SOUND, WRONG = "sound", "known to be wrong"
COLOURS = {SOUND: "#1f6f8b", WRONG: "#c0392b"}
FARTHEST = 3.0  # times the claim: bounds beyond are drawn here


def claims_chart(found: Sequence[Finding]) -> alt.LayerChart | None:
    """Every bound as a share of its claim; the rule is the claim itself."""
    import altair as alt

    if not found:
        return None
    values = [
        {
            "m": f.name,
            "x": min(f.bound / f.claim.amount, FARTHEST),
            "k": WRONG if f.is_broken else SOUND,
            "t": f"{f.claim.kind} {f.claim.amount:.3g}, bound {f.bound:.3g}",
        }
        for f in found
    ]
    kinds = [k for k in COLOURS if any(v["k"] == k for v in values)]
    scale = alt.Scale(domain=kinds, range=[COLOURS[k] for k in kinds])
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(height=11)
        .encode(
            alt.X("x:Q", title="lower bound, as a share of the claim", scale=alt.Scale(zero=True)),
            alt.Y("m:N", title=None, sort=None, axis=alt.Axis(labelLimit=420, ticks=False)),
            color=alt.Color("k:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            tooltip=[alt.Tooltip("m:N", title="mechanism"), alt.Tooltip("t:N", title="claim")],
        )
    )
    rule = alt.Chart(alt.InlineData(values=[{"x": 1.0}])).mark_rule(color="#222", strokeDash=[4, 3])
    title = alt.Title(
        "What the audit proves, against what is claimed",
        subtitle=f"beyond the rule a claim is refuted; bounds above {FARTHEST:g} are cut there",
    )
    layers = alt.layer(bars, rule.encode(alt.X("x:Q")))
    return layers.properties(width=420, height=15 * len(values), title=title)


def curves_chart(found: Sequence[Finding]) -> alt.LayerChart | None:
    """delta at some epsilons for the Gaussian claims of mu = 1: the claim, and lower bounds."""
    import altair as alt

    gaussian = [
        f for f in found if f.claim.kind == "mu" and abs(f.claim.amount - 1) < 1e-3 and f.curve
    ]
    if not gaussian:
        return None
    claimed = [{"x": p.epsilon, "y": p.claimed} for p in gaussian[0].curve]
    proved = [
        {"m": f.name, "x": p.epsilon, "y": p.bound, "k": WRONG if f.is_broken else SOUND}
        for f in gaussian
        for p in f.curve
        if p.bound > 0
    ]
    y = alt.Y("y:Q", title="delta", scale=alt.Scale(type="log"))
    x = alt.X("x:Q", title="epsilon")
    line = alt.Chart(alt.InlineData(values=claimed)).mark_line(color="#222").encode(x, y)
    colour = alt.Color(
        "k:N",
        title=None,
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=alt.Legend(orient="top"),
    )
    dots = (
        alt.Chart(alt.InlineData(values=proved))
        .mark_point(size=40, filled=True, opacity=0.6)
        .encode(x, y, color=colour, tooltip=[alt.Tooltip("m:N", title="mechanism")])
    )
    title = alt.Title(
        "Gaussian mechanisms with mu = 1",
        subtitle="line: delta as claimed; dots: lower bounds on delta, all at once with 99.9%",
    )
    return alt.layer(line, dots).properties(width=420, height=300, title=title)
