# SPDX-License-Identifier: Apache-2.0
"""Altair charts of answers and forecasts, the same on the page, in a notebook and in a PNG.

Data goes into a chart as CSV text under short field names, which keeps reports small and keeps
attribute names (with dots, brackets, quotes) out of Vega's field syntax; labels appear as titles
and axis texts only.

**Synthetic records**: how far they can be trusted, from public numbers alone, as a table and a
chart.

A table that was asked for is compared with its published answers: the distance of both
distributions, the largest difference, and how many answers of the records lie inside of the
published intervals. Of a pair of attributes that no released table holds, nothing is known; how
strongly it is associated in the records is what the model left there, and is listed so that nobody
takes it for a finding. Distances to the true table are not among the measures: they would read the
data, and cost budget. Ask for a table to know it.

Distances are total variation, so that ``1000 (1 - mean distance)`` is the k-marginal score of Task,
Bhagat, Howarth 2023, "SDNist: benchmark data and evaluation tools for data synthesizers", with the
published tables in place of the true ones. Associations are Cramer's V without its bias (Bergsma
2013, "A bias-correction for Cramer's V and Tschuprow's T"): 0 in the mean for independent columns.

Privacy: functions of what was released (post-processing: Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

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
from sfumato.types import Array, Integers
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    Chart: TypeAlias = alt.Chart | alt.LayerChart
    from sfumato.refine.synthesize import Synthetic

__all__ = [
    "QUALITY",
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
    "quality_rows",
    "smaller_png",
    "synthetic_quality",
    "synthetic_quality_chart",
    "write_chart",
]

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
    """The answers of a two-way table by colour, with marks where intervals are wide.

    A cross stands on an answer whose interval reaches 0, a dot on another one whose interval is
    wider than half of it to each side.
    """
    import altair as alt

    across = [label_text(v) for v in frame[x].tolist()]
    down = [label_text(v) for v in frame[y].tolist()]
    columns = {"x": across, "y": down, "v": frame["value"], "l": frame["low"], "h": frame["high"]}
    rows = len(set(down))
    step = 22 if rows <= 16 else max(4, min(14, 420 // rows))
    tip = [_tip("x", x, "N"), _tip("y", y, "N"), *_number_tips("value")]
    base = alt.Chart(_inline(columns)).encode(
        alt.X("x:N", sort=None, title=x, axis=alt.Axis(labelOverlap=True, labelLimit=120)),
        alt.Y("y:N", sort=None, title=y, axis=alt.Axis(labelOverlap=True, labelLimit=180)),
        tooltip=tip,
    )
    cells = base.mark_rect().encode(
        alt.Color("v:Q", title="value", scale=alt.Scale(scheme="viridis"))
    )
    # Worked out where it is drawn: a preview changes the ends while a budget moves.
    wide = alt.expr.if_(alt.datum.h - alt.datum.l > alt.expr.abs(alt.datum.v), _WIDE, "")
    reaches = (alt.datum.l <= 0) & (alt.datum.h >= 0)
    shape = alt.Shape(
        "u:N",
        title="interval",
        scale=alt.Scale(domain=[_REACHES, _WIDE], range=["cross", "circle"]),
        legend=alt.Legend(orient="top", symbolSize=50, symbolStrokeColor="#333333"),
    )
    # Grey, so that the marks of the key are seen on light and dark pages, too.
    marks = (
        base.transform_calculate(u=alt.expr.if_(reaches, _REACHES, wide))
        .transform_filter(alt.datum.u != "")
        .mark_point(filled=True, fill="#d0d0d0", stroke="#333333", strokeWidth=0.6, opacity=1)
        .encode(shape, size=alt.value(min(24, max(6, step * step // 8))))
    )
    return (cells + marks).properties(width=width, height=rows * step)


_REACHES: Final = "reaches 0"
_WIDE: Final = "wider than half of the value"


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


QUALITY: Final = "quality"
"""The key of the measures in ``attrs`` of a frame of synthetic records."""

COLUMNS: Final = (
    "table",
    "asked",
    "answers",
    "distance",
    "largest",
    "inside",
    "association",
    "published_association",
)

Measures = dict[str, str | bool | int | float | None]


def synthetic_quality(records: pd.DataFrame) -> pd.DataFrame:
    """How well synthetic records answer what was asked, and what they say without evidence.

    Privacy: a function of what was released; it costs nothing, and no data is read.

    Args:
        records: What ``release.synthetic`` returned. The measures were taken when it was drawn:
            they do not follow changes of the frame.

    Returns:
        One row per released group, then one per pair of attributes that no released table holds.
        ``distance`` is the total variation distance from the published table, between 0 and 1;
        ``largest`` the largest difference of an answer, in records of the released total;
        ``inside`` the part of the answers that lies inside of the published 95% intervals;
        ``association`` Cramer's V of a pair, ``published_association`` that of its published
        table. What is not defined, or not known, is empty.

    Raises:
        WorkloadError: if the frame carries no measures, because it is none of ``synthetic``.

    >>> import sfumato as sf
    >>> import pandas as pd
    >>> domain = sf.Domain({"age": 3, "sex": 2})
    >>> plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1))
    >>> table = pd.DataFrame({"age": [0, 1, 2] * 100, "sex": [0, 1, 0] * 100})
    >>> records = plan.release(table).synthetic(500)
    >>> sf.synthetic_quality(records)[["table", "asked"]].values.tolist()
    [['age', True], ['sex', True], ['age x sex', False]]
    """
    import pandas as pd

    frame = pd.DataFrame(_measures(records), columns=list(COLUMNS))
    numbers = ["distance", "largest", "inside", "association", "published_association"]
    return frame.astype(dict.fromkeys(numbers, float))


def synthetic_quality_chart(records: pd.DataFrame) -> alt.VConcatChart:
    """Distances of the tables that were asked for, and associations of all pairs, as one picture.

    Args:
        records: What ``release.synthetic`` returned.

    Returns:
        An Altair chart: bars of the distances from the published tables, the farthest first, above
        the associations in the records of pairs, asked ones and others by colour.

    Raises:
        WorkloadError: if the frame carries no measures, because it is none of ``synthetic``.
    """

    return quality_bars(synthetic_quality(records), LIMITS.quality_bars)


def _measures(records: pd.DataFrame) -> list[Measures]:
    rows = getattr(records, "attrs", {}).get(QUALITY)
    if rows is None:
        raise WorkloadError(
            "these records carry no measures of their quality; give the frame that "
            "release.synthetic() returned, as it came"
        )
    return list(rows)


def quality_rows(estimates: Estimates, synthetic: Synthetic) -> list[Measures]:
    """The measures of every released group, then of the pairs that no released table holds."""
    count = len(next(iter(synthetic.codes.values()), ()))
    if not count:
        return []
    terms = estimates.workload.terms
    out = [
        _of_group(estimates, number, synthetic.codes, count)
        for number, term in enumerate(terms)
        if not term.is_wide and term.cells <= LIMITS.quality_cells
    ]
    names = estimates.workload.domain.names
    held = {pair for t in terms for pair in combinations(sorted(t.attributes, key=names.index), 2)}
    others = [pair for pair in combinations(names, 2) if pair not in held]
    sizes = {name: estimates.workload.domain[name].size for name in names}
    listed = [p for p in others if prod(sizes[n] for n in p) <= LIMITS.quality_cells]
    for pair in listed[: LIMITS.quality_pairs]:
        table = _table(synthetic.codes, pair, tuple(sizes[n] for n in pair))
        out.append(_row(" x ".join(pair), False, int(table.size), association=association(table)))
    return out


def _row(table: str, is_asked: bool, answers: int, **numbers: float | None) -> Measures:
    row: Measures = dict.fromkeys(COLUMNS)
    return row | {"table": table, "asked": is_asked, "answers": answers} | numbers


def _of_group(
    estimates: Estimates, number: int, codes: Mapping[str, Integers], count: int
) -> Measures:
    term = estimates.workload.terms[number]
    answers = estimates.group(number)
    published = answers.value()
    low, high = answers.interval(LIMITS.level)
    table = _table(codes, term.attributes, term.shape) * (estimates.total / count)
    own = term.answer(table)
    has_ends = np.isfinite(low) & np.isfinite(high)
    inside = (own >= low) & (own <= high)
    numbers = {
        "largest": float(np.abs(own - published).max(initial=0.0)),
        "inside": float(inside[has_ends].mean()) if has_ends.any() else None,
    }
    numbers |= _of_table(term, own, published) if term.is_table else {}
    return _row(term.name, True, term.rows, **numbers)


def _of_table(term: Term, own: Array, published: Array) -> dict[str, float | None]:
    """Measures that a table of all cells of its attributes has, and other groups have not."""
    mine, theirs = own.reshape(term.shape), np.maximum(published, 0.0).reshape(term.shape)
    if not mine.sum() > 0 or not theirs.sum() > 0:
        return {}
    distance = 0.5 * float(np.abs(mine / mine.sum() - theirs / theirs.sum()).sum())
    if len(term.shape) != 2:
        return {"distance": distance}
    both = {"association": association(mine), "published_association": association(theirs)}
    return {"distance": distance} | both


def _table(codes: Mapping[str, Integers], names: tuple[str, ...], shape: tuple[int, ...]) -> Array:
    places = np.zeros(len(next(iter(codes.values()))), dtype=np.int64)
    for name, size in zip(names, shape, strict=True):
        places = places * size + codes[name]
    counted = np.bincount(places, minlength=prod(shape)).reshape(shape)
    return np.asarray(counted, dtype=np.float64)


def association(table: Array) -> float | None:
    """Cramer's V of a table of counts without its bias; None where one attribute is constant."""
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    count, (rows, columns) = float(table.sum()), table.shape
    if count <= 1 or min(rows, columns) < 2:
        return None
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / count
    square = float(((table - expected) ** 2 / expected).sum()) / count
    excess = max(0.0, square - (rows - 1) * (columns - 1) / (count - 1))
    height = rows - (rows - 1) ** 2 / (count - 1)
    width = columns - (columns - 1) ** 2 / (count - 1)
    least = min(height, width) - 1
    return sqrt(min(1.0, excess / least)) if least > 0 else 0.0
