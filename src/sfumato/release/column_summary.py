# SPDX-License-Identifier: Apache-2.0
"""The summary of columns for people: a frame of a description as a short table and as HTML.

A frame has a row per column (`sfumato.run.describe`), with x, ``x_low`` and ``x_high`` beside each
other; here they stand in one cell, ``38.6 (38.4 to 38.8)``. All texts are escaped in HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from html import escape
from math import isfinite, log10
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["sentences", "short_frame", "summary_html"]

_HEADS: Final = {
    "column": "column",
    "kind": "kind",
    "records": "with a value",
    "nulls": "missing",
    "values": "values",
    "mean": "mean",
    "q25": "lower quartile",
    "median": "median",
    "q75": "upper quartile",
    "note": "",
}


def short_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of a description in few columns of text, intervals beside their numbers."""
    import pandas as pd

    rows = [_cells(row) for row in frame.to_dict("records")]
    names = [n for n in _HEADS if any(row[n] for row in rows)]
    return pd.DataFrame(
        {_HEADS[n] or "note": [row[n] for row in rows] for n in names}, dtype=object
    )


def sentences(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Every column with what is said of it in one sentence, for narrow places."""
    return [(str(row["column"]), _sentence(_cells(row))) for row in frame.to_dict("records")]


def _sentence(cells: Mapping[str, str]) -> str:
    parts = [", ".join(part for part in (cells["kind"], cells["values"]) if part)]
    if cells["mean"]:
        parts.append(f"mean {cells['mean']}")
    if cells["median"]:
        parts.append(f"quartiles {cells['q25']}, {cells['median']}, {cells['q75']}")
    if cells["nulls"]:
        parts.append(f"missing {cells['nulls']}")
    return "; ".join(part for part in (*parts, cells["note"]) if part)


def summary_html(frame: pd.DataFrame, title: str, promise: str = "") -> str:
    """The summary as a section of a page; ``promise`` says what all of it spends together."""
    table = short_frame(frame)
    heads = "".join(f"<th class='label'>{escape(str(name))}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td class='label'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in table.itertuples(index=False)
    )
    return (
        f"<h2>{escape(title)}</h2><div class='wide'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f"<p class='note'>{escape(promise)}</p>"
        "<p class='note'>In brackets: intervals that hold the truth with 95% each. Means and "
        "quartiles are those of values clamped to the range; the first of the values is the one "
        "that discovery counted most often.</p>"
    )


def _cells(row: Mapping[Any, Any]) -> dict[str, str]:
    out = {"column": str(row["column"]), "kind": str(row["kind"])}
    out["records"] = _number(row.get("records"), 10.0)
    out["nulls"] = _with_interval(row, "nulls")
    out["values"] = _values(row)
    for key in ("mean", "q25", "median", "q75"):
        out[key] = _with_interval(row, key)
    out["note"] = _text(row.get("note"))
    return out


def _values(row: Mapping[Any, Any]) -> str:
    """The keys, or the range."""
    if _is_there(row.get("keys")):
        count = _number(row.get("top_count"), 10.0)
        more = int(row["keys"]) - 1
        others = f" and {more:,} more" if more else ""
        return f"{row['top']} ({count}){others}"
    if _is_there(row.get("low")):
        return f"{_value(row['low'])} to {_value(row['high'])}"
    return ""


def _with_interval(row: Mapping[Any, Any], key: str) -> str:
    value = row.get(key)
    if not _is_there(value):
        return ""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if not _is_there(low) or not _is_there(high):
        return _value(value)
    if isinstance(value, date):
        return f"{_value(value)} ({_value(low)} to {_value(high)})"
    width = float(high) - float(low)  # type: ignore[arg-type]
    step = width / 4 if width > 0 else 10.0
    return f"{_number(value, step)} ({_number(low, step)} to {_number(high, step)})"


def _number(value: Any, step: float) -> str:
    """A number to two digits of a step."""
    if not _is_there(value):
        return ""
    digits = 1 - int(log10(step) // 1) if step > 0 and isfinite(step) else 3
    text = f"{float(value):,.{min(max(digits, 0), 9)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == datetime.min.time() else str(value)
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e15):
        return f"{value:g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_there(value: Any) -> bool:
    """Whether it is neither None nor NaN nor NaT."""
    return value is not None and value == value
