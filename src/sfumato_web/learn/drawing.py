# SPDX-License-Identifier: Apache-2.0
"""Small figures as SVG text: axes, lines, points, steps.

A figure is part of the page: the page's style sheet gives it its colours, light or dark, its words
can be read by a screen reader and by a test, and it needs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, Literal

__all__ = ["Axis", "Hue", "Plot", "Point", "number", "picture"]


Point = tuple[float, float]
Hue = Literal["blue", "red", "gold", "violet", "grey"]

_RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """A number as people write it: three digits, thousands apart.

    >>> [number(x) for x in (0.01234, 3.14159, 271.8, 65536, 2e-5, 0)]
    ['0.0123', '3.14', '272', '65,536', '0.00002', '0']
    """
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if 1e-6 < size < 1e-3:
        return f"{value:.7f}".rstrip("0")
    return f"{value:.3g}"


def picture(width: float, height: float, parts: Iterable[str], about: str) -> str:
    """An SVG of these parts; ``about`` says in words what it shows."""
    label = escape(about)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from ``low`` to ``high``, linear or logarithmic."""

    title: str
    low: float
    high: float
    is_log: bool = False
    is_share: bool = False
    is_bare: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end; beyond them, at the end."""
        return self.raw(min(max(value, self.low), self.high))

    def raw(self, value: float) -> float:
        """The same, below 0 or above 1 for values beyond the ends."""
        if self.is_log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """About five round values; none on a bare axis."""
        if self.is_bare:
            return []
        if self.is_log:
            first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
            step = max(1, ceil((last - first) / 5))
            return [10.0**e for e in range(first, last + 1, step)]
        span = self.high - self.low
        unit = 10.0 ** floor(log10(span / 4))
        step_size = next(unit * f for f in (1, 2, 5, 10) if span / (unit * f) <= 5.5)
        first = ceil(self.low / step_size - 1e-9)
        last = floor(self.high / step_size + 1e-9)
        return [round(i * step_size, 12) for i in range(first, last + 1)]

    def text(self, value: float) -> str:
        """A value as the axis writes it."""
        if self.is_share:
            return f"{number(100 * value)}%"
        if self.is_log and value >= 10_000:
            return "10" + str(round(log10(value))).translate(_RAISED)
        return number(value)


@dataclass(slots=True)
class Plot:
    """A figure with two axes; everything is added in data units."""

    x: Axis
    y: Axis
    width: float = 460.0
    height: float = 300.0
    left: float = 62.0
    bottom: float = 46.0
    top: float = 26.0
    right: float = 16.0
    _parts: list[str] = field(default_factory=list)
    _names: list[tuple[str, Hue, str]] = field(default_factory=list)

    def at(self, point: Point) -> Point:
        """A point of the data on the paper."""
        return self._on_paper(self.x.place(point[0]), self.y.place(point[1]))

    def _on_paper(self, x: float, y: float) -> Point:
        across, up = self.width - self.left - self.right, self.height - self.top - self.bottom
        return self.left + across * x, self.top + up * (1 - y)

    def line(self, points: Sequence[Point], hue: Hue, name: str = "", look: str = "") -> None:
        """A line through points; with a name it is in the legend. ``look`` is dashed or dotted."""
        path, last = "", None
        for start, end in (self._seen(a, b) for a, b in pairwise(points)):
            if start != end:
                path += "" if start == last else "M{:.1f},{:.1f}".format(*start)
                path += "L{:.1f},{:.1f}".format(*end)
                last = end
        self._parts.append(f'<path class="line s-{hue} {look}" d="{path}"/>')
        if name:
            self._names.append((name, hue, look))

    def _seen(self, start: Point, end: Point) -> tuple[Point, Point]:
        """The part of a line between two points that is between the ends of the y axis."""
        (x1, y1), (x2, y2) = ((self.x.place(p[0]), self.y.raw(p[1])) for p in (start, end))

        def cut(y: float) -> tuple[float, float]:
            edge = min(max(y, 0.0), 1.0)
            part = 0.0 if y1 == y2 else (edge - y1) / (y2 - y1)
            return x1 + part * (x2 - x1), edge

        ends = ((x1, y1) if 0 <= y1 <= 1 else cut(y1), (x2, y2) if 0 <= y2 <= 1 else cut(y2))
        first, second = (self._on_paper(*p) for p in ends)
        return first, second

    def steps(self, points: Sequence[Point], hue: Hue, name: str = "", look: str = "") -> None:
        """A line that stays level until the next point."""
        out: list[Point] = []
        for i, point in enumerate(points):
            if i:
                out.append((point[0], points[i - 1][1]))
            out.append(point)
        self.line(out, hue, name, look)

    def dots(
        self,
        points: Sequence[Point],
        hue: Hue,
        *,
        size: float = 3.2,
        look: str = "",
        name: str = "",
    ) -> None:
        """A disc at each point; ``hollow`` has the paper inside."""
        for point in points:
            x, y = self.at(point)
            if look == "hollow":
                inside = f'class="paper s-{hue}" stroke-width="1.8"'
            else:
                inside = f'class="f-{hue} {look}"'
            self._parts.append(f'<circle {inside} cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>')
        if name:
            self._names.append((name, hue, "dot"))

    def area(self, points: Sequence[Point], hue: Hue) -> None:
        """A filled polygon."""
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.at, points))
        self._parts.append(f'<polygon class="area f-{hue}" points="{where}"/>')

    def bar(self, x: Point, y: Point, hue: Hue, look: str = "") -> None:
        """A rectangle from x[0] to x[1] and from y[0] to y[1]; ``outline`` is empty inside."""
        left, low = self.at((x[0], y[0]))
        right, high = self.at((x[1], y[1]))
        style = f'class="s-{hue} {look}" fill="none" stroke-width="1.8"'
        if look != "outline":
            style = f'class="f-{hue} {look}"'
        self._parts.append(
            f'<rect {style} x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" '
            f'height="{max(low - high, 0):.1f}"/>'
        )

    def name(self, name: str, hue: Hue, look: str = "square") -> None:
        """An entry of the legend by itself."""
        self._names.append((name, hue, look))

    def rule(self, *, x: float | None = None, y: float | None = None, name: str = "") -> None:
        """A dotted line across the figure at a value, with words beside it."""
        ends = (
            ((self.x.low, y), (self.x.high, y))
            if x is None and y is not None
            else ((x or 0.0, self.y.low), (x or 0.0, self.y.high))
        )
        (x1, y1), (x2, y2) = self.at(ends[0]), self.at(ends[1])
        self._parts.append(f'<path class="axis dotted" d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}"/>')
        if not name:
            return
        if x is None:
            self._parts.append(_text(x2 - 2, y1 - 5, name, "end"))
        else:
            is_right = x1 > (self.left + self.width - self.right) / 2
            self._parts.append(
                _text(
                    x1 + (-5 if is_right else 5),
                    self.top + 11,
                    name,
                    "end" if is_right else "start",
                )
            )

    def say(self, point: Point, text: str, *, anchor: str = "middle", up: float = 8.0) -> None:
        """Words near a point."""
        x, y = self.at(point)
        self._parts.append(_text(x, y - up, text, anchor, "ink"))

    def svg(self, about: str) -> str:
        """The whole figure, its legend below it."""
        legend, rows = self._legend()
        parts = [*self._frame(), *self._parts, *legend]
        return picture(self.width, self.height + 19 * rows, parts, about)

    def _frame(self) -> list[str]:
        out = []
        low, floor_ = self.left, self.height - self.bottom
        for value in self.y.ticks():
            _, y = self.at((self.x.low, value))
            out.append(f'<path class="hair" d="M{low:g},{y:.1f}H{self.width - self.right:g}"/>')
            out.append(_text(low - 6, y + 4, self.y.text(value), "end"))
        for value in self.x.ticks():
            x, _ = self.at((value, self.y.low))
            out.append(f'<path class="axis" d="M{x:.1f},{floor_:g}v4"/>')
            out.append(_text(x, floor_ + 17, self.x.text(value), "middle"))
        out.append(f'<path class="axis" d="M{low:g},{floor_:g}H{self.width - self.right:g}"/>')
        middle = (low + self.width - self.right) / 2
        out.append(_text(middle, self.height - 8, self.x.title, "middle"))
        out.append(_text(4, 13, self.y.title, "start", "ink"))
        return out

    def _legend(self) -> tuple[list[str], int]:
        """Names of lines and points, in as many rows as they need."""
        out: list[str] = []
        x, row = self.left, 1
        for name, hue, look in self._names:
            wide = 34 + 6.1 * len(name)
            if x > self.left and x + wide > self.width:
                x, row = self.left, row + 1
            y = self.height + 19 * row - 7
            if look == "dot":
                out.append(f'<circle class="f-{hue}" cx="{x + 9:.1f}" cy="{y - 4:.1f}" r="3.6"/>')
            elif look in ("square", "outline"):
                kind = f"f-{hue}" if look == "square" else f"hair s-{hue}"
                box = f'x="{x + 5:.1f}" y="{y - 9:.1f}" width="11" height="10"'
                out.append(f'<rect class="{kind}" stroke-width="1.8" {box}/>')
            else:
                out.append(f'<path class="line s-{hue} {look}" d="M{x:.1f},{y - 4:.1f}h18"/>')
            out.append(_text(x + 23, y, name, "start"))
            x += wide
        return out, row if self._names else 0


def _text(x: float, y: float, text: str, anchor: str = "start", look: str = "") -> str:
    chosen = f' class="{look}"' if look else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
