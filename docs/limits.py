# SPDX-License-Identifier: Apache-2.0
"""Write ``docs/limits.md``, the list of all limits: ``python docs/limits.py``.

Read from the source of every ``*_limits.py``: a field of its class, its value as it is written, and
the sentence below it. ``tests/whole/test_limits.py`` fails where the page is another.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "limits.md"
HEAD = """# Limits

Every number that decides which search is made, when it ends or what is refused as too large stands
in one frozen class for each room of the source, with its reason. This page is written from them
(`python docs/limits.py`). A change can make plans better, slower or larger, and gives other plans
for equal inputs. No privacy claim relies on one of them: numbers that a [proof](proofs/README.md)
uses stand beside the code that it is about.
"""


@dataclass(frozen=True)
class Limit:
    """One field: the module it is about, its name, its value as written, its reason."""

    module: str
    name: str
    value: str
    reason: str


def limits_of(text: str) -> tuple[str, list[Limit]]:
    """The name of the class of limits in a source text, and its fields in order."""
    tree = ast.parse(text)
    names = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name.endswith("Limits")]
    if len(names) != 1:
        raise ValueError(f"a module of limits has one class of limits, this one {len(names)}")
    (home,) = names
    lines, out = text.split("\n"), list[Limit]()
    for field, below in zip(home.body, [*home.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        reason = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            reason = " ".join(str(below.value.value).split())
        value = "" if field.value is None else ast.unparse(field.value)
        out.append(Limit(_heading(lines, field.lineno), field.target.id, value, reason))
    return home.name, out


def _heading(lines: list[str], line: int) -> str:
    """The nearest comment above a field that stands alone in its line."""
    for text in reversed(lines[: line - 1]):
        if text.strip().startswith("class "):
            return ""
        if text.strip().startswith("# "):
            return text.strip()[2:]
    return ""


def modules() -> list[Path]:
    """The modules of limits, in the order of their packages and rooms."""
    return sorted((ROOT / "src").rglob("*_limits.py"))


def page() -> str:
    """The page as it should be."""
    out = [HEAD]
    for path in modules():
        name, limits = limits_of(path.read_text())
        home = path.relative_to(ROOT / "src").parent
        out += [f"## {home}", "", f"`{name}`, {len(limits)} limits.", ""]
        out += ["| about | limit | value | reason |", "| --- | --- | --- | --- |"]
        shown = None
        for limit in limits:
            about = "" if limit.module == shown else limit.module
            shown = limit.module
            cells = (about, f"`{limit.name}`", f"`{limit.value}`", limit.reason)
            out.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page())
