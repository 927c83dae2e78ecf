# SPDX-License-Identifier: Apache-2.0
"""The site is built strictly, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import sfumato as sf

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself, by element; links that a reader has to click are not among it.
LOADS = {
    "img": ("src", "srcset"),
    "script": ("src",),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "input": ("src",),
    "use": ("href",),
}
FETCHED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest")
STYLED = re.compile(r"""(?:url\(|@import\s+)\s*["']?((?:https?:)?//[^"')\s]+)""")
# The search worker and the bundle of the theme know addresses that need a repository or a diagram.
UNUSED = re.compile(r"""class="(?:mermaid|md-source)["\s]""")


class Loaded(HTMLParser):
    """The addresses of other hosts that a page fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        values = [held.get(name, "") for name in LOADS.get(tag, ())]
        if tag == "link" and set(held.get("rel", "").split()) & set(FETCHED):
            values.append(held.get("href", ""))
        self.found += [v for v in values if re.match(r"(?:https?:)?//", v.strip())]
        self.found += STYLED.findall(held.get("style", ""))


def loads(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return parser.found + STYLED.findall("".join(re.findall(r"<style.*?</style>", html, re.S)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    found = {str(p.relative_to(site)): loads(p.read_text()) for p in pages}
    assert {name: urls for name, urls in found.items() if urls} == {}
    assert not [p for p in pages if UNUSED.search(p.read_text())]


def test_no_style_sheet_loads_anything_from_elsewhere(site: Path) -> None:
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    assert [url for sheet in sheets for url in STYLED.findall(sheet.read_text())] == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img srcset="https://a.example/x.png 2x">',
        '<p style="background: url(https://a.example/x.png)">',
        "<style>@import 'https://a.example/x.css';</style>",
    ],
)
def test_a_page_that_loads_something_is_noticed(html: str) -> None:
    assert loads(html)


def test_links_that_are_clicked_are_no_loads() -> None:
    assert loads('<a href="https://a.example/">paper</a>') == []
    assert loads('<link rel="canonical" href="https://a.example/">') == []


def test_every_public_name_is_in_the_reference_once(site: Path) -> None:
    """By its heading: the anchor is the name's home."""
    page = (site / "api.html").read_text()
    headings = re.findall(r'<h3 id="sfumato\.[\w.]*?\.?(\w+)"', page)
    public = {*sf.__all__, *sf.study.__all__} - {"study"}
    assert sorted(headings) == sorted(public)


def test_examples_in_the_reference_are_code(site: Path) -> None:
    """Three angle brackets would be quotations of quotations in Markdown."""
    page = (site / "api.html").read_text()
    assert "<blockquote>" not in page
    assert page.count("&gt;&gt;&gt;") > 30
