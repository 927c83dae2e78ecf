# SPDX-License-Identifier: Apache-2.0
"""Where the command line writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sfumato.app.progress import Bars

__all__ = [
    "Output",
]


@dataclass(frozen=True, slots=True)
class Output:
    """How one run of a command shows its results.

    With ``as_json`` standard output holds one JSON document and nothing else.
    """

    as_json: bool = False
    is_quiet: bool = False

    def result(self, document: Mapping[str, object], *shown: RenderableType) -> None:
        """Write the result: the document as JSON, or what is shown to people."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=False)
        for part in shown:  # brackets in a line are no markup
            console.print(Text(part) if isinstance(part, str) else part)

    def text(self, text: str) -> None:
        """Write plain text to standard output, as it is."""
        sys.stdout.write(text)

    def note(self, message: str) -> None:
        """Write a remark for people to standard error."""
        if not self.is_quiet:
            sys.stderr.write(message + "\n")

    @contextmanager
    def bars(self) -> Iterator[Bars]:
        """Progress bars on standard error; none when it is not a terminal."""
        from sfumato.app.progress import bars

        is_shown = sys.stderr.isatty() and not self.is_quiet and not self.as_json
        with bars(is_shown) as shown:
            yield shown

    def confirm(self, what: str) -> None:
        """Ask on a terminal before anything is spent; without one nothing is, unless --yes says so.

        Raises:
            SfumatoError: If the answer is no, or there is nobody to ask.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise SfumatoError(
                f"{what} There is no terminal to ask on, so nothing was spent; give --yes to spend "
                "it without being asked"
            )
        sys.stderr.write(f"{what} Go on? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SfumatoError("stopped before anything was spent")
