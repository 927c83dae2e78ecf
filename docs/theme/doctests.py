# SPDX-License-Identifier: Apache-2.0
"""Docstrings as Markdown: examples are code, and so are the names between single backticks."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.MULTILINE)


class Doctests(Extension):
    """``>>>`` begins a quotation in Markdown; between fences it is an example."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of every object that is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with every block of examples between fences."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
