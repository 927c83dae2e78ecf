# SPDX-License-Identifier: Apache-2.0
"""The frame of an HTML report: style, script and the charting library, all inside one file.

The page loads nothing: its content security policy forbids every connection, so it opens the same
from a disk without a network. It follows the reader's light or dark setting and narrow screens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from html import escape

__all__ = ["library", "page", "script_json"]

# Vega compiles its expressions with `Function`, hence 'unsafe-eval'; nothing can be fetched.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "img-src data: blob:"
)

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --paper: #ffffff; --panel: #f5f7f9;
  --accent: #2f7fa3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #333c48;
  --paper: #14181e; --panel: #1c222a; --accent: #6db6d6; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--accent); }
.promise { font-size: 1.05rem; border-left: 3px solid var(--accent); padding: .2rem 0 .2rem .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem;
  margin: 1.4rem 0; padding: 0; }
.facts div { background: var(--panel); border-radius: .5rem; padding: .7rem .9rem; }
.facts dt { color: var(--soft); font-size: .82rem; }
.facts dd { margin: .1rem 0 0; overflow-wrap: anywhere; white-space: pre-line; }
.facts small { color: var(--soft); display: block; line-height: 1.35; }
details { border-top: 1px solid var(--line); }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .6rem .2rem; display: flex; flex-wrap: wrap; gap: .2rem 1rem;
  align-items: baseline; list-style-position: inside; }
summary::before { content: "\\25B8"; color: var(--soft); width: .8rem; flex: none; }
details[open] > summary::before { content: "\\25BE"; }
summary::-webkit-details-marker { display: none; }
summary:focus-visible { outline: 2px solid var(--accent); }
summary b { overflow-wrap: anywhere; }
summary span { color: var(--soft); font-size: .88rem; }
.inside { padding: .2rem 0 1.4rem; }
.wide { overflow-x: auto; max-width: 100%; }
.wide.tall { max-height: 24rem; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--paper); }
.chart { width: 100%; min-height: 60px; }
.vega-embed { width: 100%; }
.vega-embed .vega-actions { display: none; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .8rem .28rem 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
.label { text-align: left; max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
.note { color: var(--soft); font-size: .88rem; }
input { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: .4rem; padding: .35rem .6rem; width: min(24rem, 100%); margin: .4rem 0 1rem; }
pre { background: var(--panel); padding: 1rem; border-radius: .5rem; overflow-x: auto;
  font-size: .8rem; line-height: 1.4; max-height: 30rem; }
@media (max-width: 40rem) { main { padding: 1.2rem .9rem 3rem; } h1 { font-size: 1.4rem; } }
@media print { details > * { display: block; } input { display: none; } }
"""

_SCRIPT = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
function look() {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const line = style.getPropertyValue("--line").trim();
  return { background: "transparent", view: { stroke: line },
    axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line },
    legend: { labelColor: ink, titleColor: ink }, title: { color: ink }, rule: { color: ink },
    font: "system-ui, sans-serif" };
}
async function draw(place) {
  if (!place.clientWidth) return;
  try {
    if (place.view) { place.view.finalize(); }
    const result = await vegaEmbed(place, charts[place.dataset.chart],
      { actions: false, renderer: "svg", config: look() });
    place.view = result;
  } catch (error) { place.textContent = "This chart could not be drawn: " + error.message; }
}
const places = [...document.querySelectorAll(".chart")];
for (const place of places) {
  const box = place.closest("details");
  if (box) box.addEventListener("toggle", () => { if (box.open && !place.view) draw(place); });
  draw(place);
}
dark.addEventListener("change", () => places.forEach(draw));
function reveal() {
  const box = location.hash && document.getElementById(location.hash.slice(1));
  if (box instanceof HTMLDetailsElement) { box.open = true; box.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();
const find = document.getElementById("find");
const others = document.getElementById("others");
const groups = others ? JSON.parse(document.getElementById("groups").textContent) : [];
function list(wanted) {
  const found = wanted ? groups.filter((group) => group[0].toLowerCase().includes(wanted)) : [];
  const lines = found.slice(0, 30).map((group) => `${group[0]}: ${group[1]}, in answers.parquet`);
  if (found.length > lines.length) lines.push(`and ${found.length - lines.length} more`);
  others.replaceChildren(...lines.map((line) => {
    const place = document.createElement("p");
    place.className = "note";
    place.textContent = line;
    return place;
  }));
}
if (find) find.addEventListener("input", () => {
  const wanted = find.value.toLowerCase();
  for (const box of document.querySelectorAll("details[data-name]"))
    box.hidden = !box.dataset.name.toLowerCase().includes(wanted);
  if (others) list(wanted);
});
"""


def page(title: str, body: str, charts: Sequence[dict[str, object]]) -> str:
    """The whole page; ``body`` is HTML whose texts are escaped, ``title`` is plain text."""
    drawing = f"<script>{library()}</script>" if charts else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{drawing}\n"
        f'<script type="application/json" id="charts">{script_json(list(charts))}</script>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in.

    >>> script_json(["</script>"])
    '["\\\\u003c/script>"]'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the versions that Altair writes for."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    # The default snippet, which makes vegaEmbed global, is the one wanted.
    bundle = str(vl_convert.javascript_bundle(vl_version=version))  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script")
