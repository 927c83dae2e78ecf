# SPDX-License-Identifier: Apache-2.0
"""Altair charts of answers and forecasts, the same on the page, in a notebook and in a PNG.

Data goes into a chart as CSV text under short field names, which keeps reports small and keeps
attribute names (with dots, brackets, quotes) out of Vega's field syntax; labels appear as titles
and axis texts only.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from sfumato.errors import SfumatoError, WorkloadError
from sfumato.planning.forecast import Candidate
from sfumato.release.answers import (
    Group,
    asked_product,
    find_groups,
    group_frame,
    key_term,
    named_groups,
    rollup_frame,
)
from sfumato.release.estimates import Estimates
from sfumato.release.export import replaced
from sfumato.release.labels import axes_of, label_text
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

__all__ = [
    "candidates_chart",
    "cdf_band",
    "chart_of",
    "chart_of_frame",
    "chart_rank",
    "chosen_groups",
    "error_against_alpha",
    "heat_map",
    "interval_bars",
    "plot_of",
    "quality_bars",
    "smaller_png",
    "write_chart",
]


if TYPE_CHECKING:
    Chart: TypeAlias = alt.Chart | alt.LayerChart


ACCENT = "#2f7fa3"
CHOSEN = "#d1603d"

Width = int | Literal["container"]


def interval_bars(
    frame: pd.DataFrame,
    label: str | None,
    *,
    value: str = "value",
    is_upright: bool = True,
    width: Width = LIMITS.chart_width,
) -> Chart:
    """Bars from zero with the interval of every answer; one bar per row, in the given order."""
    import altair as alt

    names = [""] * len(frame) if label is None else [label_text(v) for v in frame[label].tolist()]
    columns = {"x": names, "v": frame[value], "l": frame["low"], "h": frame["high"]}
    base = alt.Chart(_inline(columns))
    place = {"sort": None, "title": label, "axis": alt.Axis(labelOverlap=True, labelAngle=0)}
    tip = [_tip("x", label or "query", "N"), *_number_tips(value)]
    if is_upright:
        kind = alt.X("x:N", **place)
        bars = base.mark_bar(color=ACCENT).encode(kind, alt.Y("v:Q", title=value), tooltip=tip)
        whiskers = base.mark_rule().encode(kind, alt.Y("l:Q"), alt.Y2("h:Q"))
        height: int | alt.Step = 260
    else:
        kind_y = alt.Y("x:N", sort=None, title=label, axis=alt.Axis(labelLimit=320))
        bars = base.mark_bar(color=ACCENT).encode(kind_y, alt.X("v:Q", title=value), tooltip=tip)
        whiskers = base.mark_rule().encode(kind_y, alt.X("l:Q"), alt.X2("h:Q"))
        height = alt.Step(20)
    return (bars + whiskers).properties(width=width, height=height)


def cdf_band(
    frame: pd.DataFrame, attr: str, by: str | None = None, *, width: Width = LIMITS.chart_width
) -> Chart:
    """Running totals as step lines with the band of their intervals, one line per ``by`` value."""
    import altair as alt

    labels = frame[attr]
    kind = {"i": "Q", "u": "Q", "f": "Q", "M": "T"}.get(labels.dtype.kind, "O")
    places = labels.tolist() if kind == "Q" else [label_text(v) for v in labels.tolist()]
    names = [""] * len(frame) if by is None else [label_text(v) for v in frame[by].tolist()]
    columns = {"x": places, "v": frame["value"], "l": frame["low"], "h": frame["high"], "s": names}
    base = alt.Chart(_inline(columns, dates=("x",) if kind == "T" else ()))
    x = alt.X(f"x:{kind}", title=attr, sort=None, scale=alt.Scale(zero=False, nice=False))
    if kind == "O":
        x = alt.X("x:O", title=attr, sort=None)
    if by is None:
        colour = alt.value(ACCENT)
    else:
        # Both layers share one key; without an opacity of its own it would be as pale as the band.
        key = alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1)
        colour = alt.Color("s:N", title=by, sort=None, legend=key)
    tip = [_tip("x", f"{attr} up to", kind), *([] if by is None else [_tip("s", by, "N")])]
    line = base.mark_line(interpolate="step-after", strokeWidth=1.5).encode(
        x,
        alt.Y("v:Q", title="records up to here"),
        color=colour,
        tooltip=[*tip, *_number_tips("value")],
    )
    band = base.mark_area(interpolate="step-after", opacity=0.25).encode(
        x, alt.Y("l:Q"), alt.Y2("h:Q"), color=colour
    )
    return (band + line).properties(width=width, height=300)


def heat_map(frame: pd.DataFrame, x: str, y: str, *, width: Width = LIMITS.chart_width) -> Chart:
    """The answers of a two-way table by colour."""
    import altair as alt

    across = [label_text(v) for v in frame[x].tolist()]
    down = [label_text(v) for v in frame[y].tolist()]
    columns = {"x": across, "y": down, "v": frame["value"], "l": frame["low"], "h": frame["high"]}
    rows = len(set(down))
    step = 22 if rows <= 16 else max(4, min(14, 420 // rows))
    tip = [_tip("x", x, "N"), _tip("y", y, "N"), *_number_tips("value")]
    return (
        alt.Chart(_inline(columns))
        .mark_rect()
        .encode(
            alt.X("x:N", sort=None, title=x, axis=alt.Axis(labelOverlap=True, labelLimit=120)),
            alt.Y("y:N", sort=None, title=y, axis=alt.Axis(labelOverlap=True, labelLimit=180)),
            alt.Color("v:Q", title="value", scale=alt.Scale(scheme="viridis")),
            tooltip=tip,
        )
        .properties(width=width, height=rows * step)
    )


def candidates_chart(
    candidates: Iterable[Candidate], *, width: Width = LIMITS.chart_width
) -> Chart:
    """The forecast error of every mechanism that fits, least first, the chosen one marked."""
    import altair as alt

    fitting = sorted((c for c in candidates if c.rmse is not None), key=lambda c: c.rmse or 0.0)
    columns = {
        "x": [c.name for c in fitting],
        "v": [c.rmse for c in fitting],
        "m": [c.largest for c in fitting],
        "c": ["chosen" if c.is_chosen else "considered" for c in fitting],
    }
    colour = alt.Color(
        "c:N",
        title=None,
        scale=alt.Scale(domain=["chosen", "considered"], range=[CHOSEN, ACCENT]),
        legend=alt.Legend(orient="top"),
    )
    tip = [_tip("x", "mechanism", "N"), _tip("v", "rmse", "Q"), _tip("m", "largest error", "Q")]
    return (
        alt.Chart(_inline(columns))
        .mark_bar()
        .encode(
            alt.Y("x:N", sort=None, title=None, axis=alt.Axis(labelLimit=240)),
            alt.X("v:Q", title="forecast root mean square error, in counts"),
            color=colour,
            tooltip=tip,
        )
        .properties(width=width, height=alt.Step(24))
    )


def error_against_alpha(
    curves: Mapping[str, Sequence[tuple[float, float]]], *, width: Width = LIMITS.chart_width
) -> Chart:
    """One line per name: the worst error against the bias that is allowed, its least point marked.

    A curve is a list of pairs ``(alpha, error)``, as ``plan.approximate.trade_off`` makes them.
    """
    import altair as alt

    if not curves or not all(curves.values()):
        raise SfumatoError("a chart of error against alpha needs curves of at least one point each")
    points = [
        (name, alpha, error, error == min(e for _, e in curve))
        for name, curve in curves.items()
        for alpha, error in curve
    ]
    columns = dict(zip(("s", "x", "v", "c"), map(list, zip(*points, strict=True)), strict=True))
    columns["c"] = ["least" if is_least else "" for is_least in columns["c"]]
    base = alt.Chart(_inline(columns))
    colour = alt.Color("s:N", title=None, sort=None, legend=alt.Legend(orient="top"))
    encoded = {
        "x": alt.X("x:Q", title="allowed bias alpha, as a share of the records"),
        "y": alt.Y(
            "v:Q", title="worst root mean square error, as a share", scale=alt.Scale(type="log")
        ),
        "color": colour,
        "tooltip": [_tip("s", "curve", "N"), _tip("x", "alpha", "Q"), _tip("v", "error", "Q")],
    }
    line = base.mark_line(strokeWidth=1.5).encode(**encoded)
    least = base.transform_filter("datum.c == 'least'").mark_point(size=80, filled=True)
    return (line + least.encode(**encoded)).properties(width=width, height=300)


def quality_bars(
    frame: pd.DataFrame, most: int, *, width: Width = LIMITS.chart_width
) -> alt.VConcatChart:
    """Distances of asked tables above associations of pairs, at most so many bars of each.

    ``frame`` is that of ``synthetic_quality``. Tables that are farthest from what was published
    come first, and pairs that are most associated.
    """
    import altair as alt

    kinds = ["asked for", "not asked for"]
    colour = alt.Color(
        "c:N",
        title=None,
        scale=alt.Scale(domain=kinds, range=[ACCENT, CHOSEN]),
        legend=alt.Legend(orient="top"),
    )
    titles = {
        "distance": "total variation distance from the published table",
        "association": "Cramér's V of the pair in the records",
    }
    parts = []
    for column, title in titles.items():
        rows = frame[frame[column].notna()].sort_values(column, ascending=False, kind="stable")
        rows = rows.head(most)
        names = rows["table"].tolist()
        which = [kinds[0] if is_asked else kinds[1] for is_asked in rows["asked"]]
        data = _inline({"x": names, "v": rows[column].tolist(), "c": which})
        bars = alt.Chart(data).mark_bar()
        place = alt.Y("x:N", sort=None, title=None, axis=alt.Axis(labelLimit=240))
        tip = [_tip("x", "table", "N"), _tip("v", column, "Q")]
        drawn = bars.encode(place, alt.X("v:Q", title=title), color=colour, tooltip=tip)
        parts.append(drawn.properties(width=width, height=alt.Step(18)))
    return alt.vconcat(*parts)


def write_chart(chart: Chart | alt.VConcatChart, path: str | Path) -> None:
    """Save a chart as PNG or SVG, by the ending of the name; needs no browser."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise SfumatoError(f"a chart is saved as .png or .svg, got {str(path)!r}")
    options = {"ppi": 144} if kind == "png" else {}
    with replaced(path) as temporary:
        chart.save(str(temporary), format=kind, **options)
        if kind == "png":
            temporary.write_bytes(smaller_png(temporary.read_bytes()))


def smaller_png(picture: bytes) -> bytes:
    """A PNG with the same pixels, compressed as well as zlib can: charts as drawn are not."""
    place, out, pixels = 8, picture[:8], b""
    while place < len(picture):
        size = 12 + int.from_bytes(picture[place : place + 4], "big")
        chunk = picture[place : place + size]
        place += size
        if chunk[4:8] == b"IDAT":
            pixels += chunk[8:-4]
            continue
        if chunk[4:8] == b"IEND":
            data = b"IDAT" + zlib.compress(zlib.decompress(pixels), 9)
            out += (len(data) - 4).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
        out += chunk
    return out


def _inline(columns: Mapping[str, object], dates: Sequence[str] = ()) -> alt.InlineData:
    """Columns as CSV text: a tenth of the size of a list of records."""
    import altair as alt
    import pandas as pd

    frame = pd.DataFrame(columns)
    numeric = [n for n in frame.columns if frame[n].dtype.kind in "iuf"]
    frame[numeric] = frame[numeric].replace([np.inf, -np.inf], np.nan)
    parse = {n: "number" if n in numeric else "date" if n in dates else "string" for n in frame}
    text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=parse))


def _tip(field: str, title: str, kind: str) -> alt.Tooltip:
    import altair as alt

    return alt.Tooltip(
        f"{field}:{kind}", title=title, **({"format": ",.4~r"} if kind == "Q" else {})
    )


def _number_tips(value: str) -> list[alt.Tooltip]:
    return [_tip("v", value, "Q"), _tip("l", "low", "Q"), _tip("h", "high", "Q")]


# Which chart suits which group of answers, and which dozen of them a report shows


def chosen_groups(workload: Workload, groups: list[Group]) -> list[Group]:
    """The groups that get a chart: running totals, then bars, then heat maps, in their order."""
    ranked = [
        (rank, i) for i, g in enumerate(groups) if (rank := chart_rank(workload, g)) is not None
    ]
    chosen = {i for _, i in sorted(ranked)[: LIMITS.charts_shown]}
    return [g for i, g in enumerate(groups) if i in chosen]


def chart_of(estimates: Estimates, group: Group, level: float, width: Width) -> Chart | None:
    """The chart of a group, or None when a table says more."""
    term = key_term(estimates.workload, group)
    if _kind(term) is None:
        return None
    value = "value" if isinstance(group, int) else group.column
    return chart_of_frame(term, group_frame(estimates, group, level), value, width)


def chart_of_frame(term: Term, frame: pd.DataFrame, value: str, width: Width) -> Chart | None:
    """The chart of answers to the queries of a term, or None when a table says more.

    Running totals as bands, answers along one attribute as bars, along two as a heat map.
    """
    kind = _kind(term)
    if kind is None:
        return None
    names = [name for axis in axes_of(term) for name, _ in axis.columns]
    if kind == "running":
        product = term.as_product()
        factors = () if product is None else product.factors
        # A condition on one more attribute has no column, so columns are found by name.
        along = next(n for n, q in factors if q.label_kind == "ends")
        return cdf_band(frame, along, *(n for n in names if n != along), width=width)
    if kind == "bars":
        label = names[0] if names else "query" if "query" in frame else None
        return interval_bars(frame, label, value=value, is_upright=_is_ordered(term), width=width)
    if value != "value":
        frame = frame.rename(columns={value: "value"})
    across, down = _long_side_first(term, names)
    return heat_map(frame, across, down, width=width)


def plot_of(
    estimates: Estimates,
    attr: str | Iterable[str] | None,
    by: str | Iterable[str] | None,
    group: str | None,
    level: float,
    width: Width,
) -> Chart | alt.VConcatChart:
    """The charts of some answers under one another: of all groups where none are named."""
    import altair as alt

    workload = estimates.workload
    names = named_groups(workload)
    charts: dict[str, Chart | None] = {}
    if attr is None and by is None and group is None:
        groups = chosen_groups(workload, [*names])
    else:
        groups = find_groups(workload, attr, by, group)
        if not groups:
            target = asked_product(workload.domain, attr, by)
            frame = rollup_frame(estimates, target, level)
            charts[target.name] = chart_of_frame(target, frame, "value", width)
    charts |= {names[g]: chart_of(estimates, g, level, width) for g in groups}
    drawn = [c.properties(title=name) for name, c in charts.items() if c is not None]
    if not drawn:
        raise WorkloadError(
            f"no chart suits {listing([*charts] or [*names.values()], 30)}: there are too many "
            "answers, or they go along more than two attributes; roll them up with fewer "
            "attributes, or read them with answers(...)"
        )
    return drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn).resolve_scale(color="independent")


def chart_rank(workload: Workload, group: Group) -> int | None:
    """0 for running totals, 1 for bars, 2 for a heat map; None where a table says more."""
    kind = _kind(key_term(workload, group))
    halves = {t for r in workload.ratios for t in r.terms}
    if kind is None or (isinstance(group, int) and group in halves):
        return None
    return {"running": 0, "bars": 1, "heat": 2}[kind]


def _kind(term: Term) -> str | None:
    product = term.as_product()
    if product is None:
        return "bars" if term.rows <= LIMITS.bars_shown else None
    factors = [q for _, q in product.factors if q.rows > 1]
    running = [q for q in factors if q.label_kind == "ends"]
    if len(running) == 1 and len(factors) <= 2:
        others = term.rows // running[0].rows
        return (
            "running" if others <= LIMITS.lines_shown and term.rows <= LIMITS.line_points else None
        )
    if running:
        return None
    if len(factors) <= 1 and not any(q.holds_prefixes for q in factors):
        has_one_column = not any(q.label_kind == "ranges" for q in factors)
        return "bars" if term.rows <= LIMITS.bars_shown and has_one_column else None
    columns = sum(2 if q.label_kind == "ranges" else 1 for q in factors)
    return "heat" if columns == 2 and term.rows <= LIMITS.heat_map_cells else None


def _is_ordered(term: Term) -> bool:
    """Whether bars stand side by side along an order, rather than under one another."""
    product = term.as_product()
    if product is None or not product.factors:
        return False
    name, queries = product.factors[0]
    return term.domain[name].is_ordered and queries.label_kind in ("cells", "groups")


def _long_side_first(term: Term, names: list[str]) -> tuple[str, str]:
    """The attribute with more cells goes across the page."""
    a, b = names
    if term.as_product() is not None and len(term.row_shape) == 2:
        first, second = term.row_shape
        return (b, a) if second > first else (a, b)
    return a, b
