# SPDX-License-Identifier: Apache-2.0
"""Draw the rooms and two ways through them, as they are: ``python docs/make_images.py house``.

rooms.svg          who imports whom at run time, in the order of the layers of pyproject.toml
walk-release.svg   the modules that ``plan.release`` visits, in order
walk-question.svg  the modules that ``session.ask`` of a new question visits, in order

Names and edges are read from the tree, so a picture is drawn again after a move and stays right.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import sqrt
from pathlib import Path

from house import SRC, House, Module, Walk, walk_of_question, walk_of_release

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.ground { fill: #fdfcfa; } .text { fill: #2a2d30; } .soft { fill: #5b6166; }
.line { stroke: #d9d6ce; } .way { stroke: #9db9c6; fill: none; } .band { fill: #f1efe9; }
.dot { fill: #2b6f8f; } .exact { fill: #b3472a; } .halo { stroke: #fdfcfa; }
@media (prefers-color-scheme: dark) {
.ground { fill: #171c1f; } .text { fill: #e8eaec; } .soft { fill: #a9b1b7; }
.line { stroke: #39424a; } .way { stroke: #4d6b79; } .band { fill: #20272b; }
.dot { fill: #7fbcd6; } .exact { fill: #e8906f; } .halo { stroke: #171c1f; }
}"""
GUARDED = "vault"  # the one room with exact data, in a colour of its own


@dataclass
class Picture:
    """Shapes of an SVG file, and how far they reach."""

    title: str
    width: float
    height: float
    shapes: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "text", **more: object) -> None:
        """Write words with their base line at y; those after a tab are softer."""
        bold, _, plain = words.partition("\t")
        rest = (
            f'<tspan class="soft" dx="8" font-weight="400">{escape(plain)}</tspan>' if plain else ""
        )
        self._add("text", f">{escape(bold)}{rest}</text>", kind, x=x, y=y, **more)

    def rectangle(self, x: float, y: float, wide: float, high: float, kind: str) -> None:
        """Draw a filled rectangle."""
        self._add("rect", "/>", kind, x=x, y=y, width=wide, height=high, rx=4)

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a thin line."""
        self._add("line", "/>", "line", x1=x, y1=y, x2=to_x, y2=to_y)

    def way(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a curve that leaves downwards and arrives from above."""
        middle = (y + to_y) / 2
        path = f"M{x:g},{y:g} C{x:g},{middle:g} {to_x:g},{middle:g} {to_x:g},{to_y:g}"
        self._add("path", "/>", "way", d=path, stroke_width=2)

    def dot(self, x: float, y: float, radius: float, kind: str, words: str = "") -> None:
        """Draw a disc; the words are shown where the pointer rests on it."""
        note = f"><title>{escape(words)}</title></circle>" if words else "/>"
        self._add("circle", note, kind, cx=x, cy=y, r=radius)

    def _add(self, tag: str, end: str, kind: str, **values: object) -> None:
        shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()}
        pairs = " ".join(f'{k.replace("_", "-")}="{v}"' for k, v in shown.items())
        self.shapes.append(f'<{tag} class="{kind}" {pairs}{end}')

    def svg(self) -> str:
        """The file, with its own ground: it is readable on a light and on a dark page."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        ground = f'<rect class="ground" width="{self.width:g}" height="{self.height:g}" rx="8"/>'
        parts = [head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", ground]
        return "\n".join([*parts, *self.shapes, "</svg>", ""])


def layers(pyproject: Path) -> list[list[str]]:
    """The rooms of the longest layers contract of import-linter, upper layers first."""
    linter = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]
    contracts = [c for c in linter["contracts"] if c["type"] == "layers"]
    longest = max(contracts, key=lambda c: len(c["layers"]))
    container = next(iter(longest.get("containers", [])), "")
    return [
        [f"{container}.{name}".strip(".") for name in re.findall(r"[\w.]+", layer)]
        for layer in longest["layers"]
    ]


def room_of(module: Module, main: str) -> str:
    """The room of a module; another package than the main one is a single room."""
    return module.room if module.package == main else module.package


def in_order(rooms: set[str], order: Sequence[Sequence[str]]) -> list[str]:
    """The rooms that exist in the order of the layers; those in no layer come first."""
    names = [".".join(name.split(".")[:2]) for layer in order for name in layer]
    listed = [name for name in dict.fromkeys(names) if name in rooms]
    return sorted(rooms - set(listed)) + listed


def short(name: str, main: str) -> str:
    """A name without the package that everything is in."""
    return name.removeprefix(f"{main}.")


def rooms_picture(house: House, order: Sequence[Sequence[str]]) -> Picture:
    """One line a room, and a disc where it imports another."""
    main = order[-1][0].split(".")[0]
    members = [m for n, m in house.modules.items() if n not in (main, f"{main}.__main__")]
    modules = Counter(room_of(m, main) for m in members)
    rooms = in_order(set(modules), order)[::-1]  # what is imported stands above
    at = {room: i for i, room in enumerate(rooms)}
    edges = [
        (here, there, times)
        for here, others in house.between(lambda m: room_of(m, main)).items()
        for there, times in others.items()
        if here in at
    ]
    step, left, top = 30, 260, 150
    size = (left + step * len(rooms) + 60, top + step * len(rooms) + 24)
    picture = Picture("The rooms, and who imports whom", *size)
    picture.text(24, 36, picture.title, font_size=19, font_weight=600)
    wrong = sum(at[there] > at[here] for here, there, _ in edges)
    order_words = (
        "None is right of the diagonal."
        if not wrong
        else (f"{wrong} of {len(edges)} are right of the diagonal.")
    )
    note = (
        "A disc: the room of its line imports",
        "that of its column; large: often.",
        order_words,
    )
    for i, words in enumerate(note):
        picture.text(24, 58 + 18 * i, words, "soft", font_size=13)
    for room, i in at.items():
        y, x = top + step * i, left + step * i
        kind = "exact" if short(room, main) == GUARDED else "text"
        if i % 2 == 0:
            picture.rectangle(16, y, size[0] - 32, step, "band")
        many = f"{modules[room]} module{'s' * (modules[room] > 1)}"
        picture.text(24, y + 20, short(room, main), kind, font_size=14, font_weight=600)
        picture.text(left - 14, y + 20, many, "soft", font_size=12, text_anchor="end")
        turn = f"rotate(-45 {x + 15:g} {top - 8:g})"
        picture.text(x + 15, top - 8, short(room, main), kind, font_size=12.5, transform=turn)
        picture.dot(x + 15, y + 15, 2, "soft")
    for here, there, times in edges:
        x, y = left + step * at[there] + 15, top + step * at[here] + 15
        kind = "exact" if short(there, main) == GUARDED else "dot"
        words = f"{short(here, main)} imports {short(there, main)}: {times}"
        picture.dot(x, y, min(13.0, 2 + 1.1 * sqrt(times)), kind, words)
    return picture


def walk_picture(walk: Walk, order: Sequence[Sequence[str]], title: str) -> Picture:
    """One line a module, in the order of first visits; the column is its room."""
    main = order[-1][0].split(".")[0]
    first: dict[str, str] = {}
    visits: Counter[str] = Counter()
    places: dict[str, str] = {}
    for module, function in walk.steps:
        first.setdefault(module.name, function)
        visits[module.name] += 1
        places[module.name] = room_of(module, main)
    rooms = in_order(set(places.values()), order)
    step, wide, left, top = 23, 104, 70, 124
    across = {room: left + wide * i for i, room in enumerate(rooms)}
    spots = []
    for i, name in enumerate(first):
        room = short(places[name], main)
        label = short(name, main).removeprefix(room).removeprefix(".") or room
        label += f"\t{first[name]}()"
        spots.append((name, label, across[places[name]], top + step * i + 4.0))
    reach = max(x + 40 + 7.4 * len(label) for _, label, x, _ in spots)
    size = (max(820.0, reach), top + step * len(first) + 16)
    picture = Picture(title, *size)
    picture.text(24, 36, title, font_size=19, font_weight=600)
    note = (
        f"{len(first)} modules and {len(walk.steps)} functions in the order of their first calls. "
        "A disc is a module: the more functions, the larger."
    )
    picture.text(24, 58, note, "soft", font_size=13)
    for room, x in across.items():
        kind = "exact" if short(room, main) == GUARDED else "text"
        if kind == "exact":
            picture.rectangle(x - 20, top - 14, 40, size[1] - top, "band")
        picture.text(
            x,
            top - 26,
            short(room, main),
            kind,
            font_size=14,
            font_weight=600,
            text_anchor="middle",
        )
        picture.line(x, top - 14, x, size[1] - 14)
    for (*_, x, y), (*_, to_x, to_y) in pairwise(spots):
        picture.way(x, y, to_x, to_y)
    for name, label, x, y in spots:
        room = short(places[name], main)
        kind = "exact" if room == GUARDED else "dot"
        picture.dot(x, y, min(9.0, 2.5 + sqrt(visits[name])), kind)
        halo = {"paint_order": "stroke", "stroke_width": 4, "stroke_linejoin": "round"}
        picture.text(x + 14, y + 4, label, "text halo", font_size=12, font_weight=600, **halo)
    return picture


def pictures() -> dict[str, Picture]:
    """The three of them, by the names of their files."""
    house, order = House(SRC), layers(SRC.parent / "pyproject.toml")
    question = walk_of_question(house)
    return {
        "rooms": rooms_picture(house, order),
        "walk-release": walk_picture(walk_of_release(house), order, "The way of a release"),
        "walk-question": walk_picture(question, order, "The way of a new question"),
    }
