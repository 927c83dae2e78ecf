# SPDX-License-Identifier: Apache-2.0
"""The texts of messages: what was received, short and safe for any value, and a near word if any.

Only public things may be shown: what a schema, a workload or a call says, never the data.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import date, time

__all__ = [
    "STORED",
    "TWO_INTERVALS",
    "did_you_mean",
    "either",
    "got",
    "listing",
    "sentence",
    "shown",
]


STORED = "stored answer, nothing spent"
"""What is said of a request whose answer a ledger had already."""

TWO_INTERVALS = (
    "interval: for a question that the noise of earlier answers did not choose; safe interval: "
    "however the question was chosen"
)
"""What is said where an answer has two intervals."""


def shown(value: object, most: int = 80) -> str:
    """Return ``repr`` of any value, cut to about ``most`` characters.

    >>> shown("Male"), shown(10**5000)
    ("'Male'", 'a whole number of more than 38 digits')
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**38:
        return "a whole number of more than 38 digits"  # repr refuses 4300 digits and more
    try:
        text = repr(value)
    except ValueError:  # such an integer inside a list
        return f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def listing(values: Sequence[object], most: int = 12) -> str:
    """Return the first few values as text, and how many there are.

    >>> listing(("a", "b", "c"), most=2)
    "'a', 'b', ... (3 in all)"
    """
    first = ", ".join(shown(v) for v in values[:most])
    return first if len(values) <= most else f"{first}, ... ({len(values)} in all)"


def either(words: Sequence[str]) -> str:
    """Return ``a``, ``a or b`` or ``a, b or c``.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def did_you_mean(word: object, choices: Iterable[object]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest of the choices, or nothing.

    >>> did_you_mean("valeus", ["kind", "values"])
    "; did you mean 'values'?"
    """
    if not isinstance(word, str):
        return ""
    # Comparing one word with the others is quadratic in their length, hence the limits.
    texts = {k.lower(): k for k in choices if isinstance(k, str) and len(k) <= 100}
    near = difflib.get_close_matches(word.lower()[:100], list(texts)[:2000], n=1, cutoff=0.6)
    return f"; did you mean {texts[near[0]]!r}?" if near else ""


def got(value: object) -> str:
    """Return a value of a TOML file in words.

    >>> got("ninety"), got(3), got([])
    ("the text 'ninety'", 'the integer 3', 'a list')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, int):
        return f"the integer {shown(value)}" if abs(value) < 10**38 else shown(value)
    if isinstance(value, float):
        return f"the number {value!r}"
    if isinstance(value, date | time):
        return f"the date or time {value.isoformat()}"
    if isinstance(value, list | tuple):
        return "a list"
    return "a table" if isinstance(value, dict) else "nothing" if value is None else shown(value)


def sentence(message: str) -> str:
    """Return a message as a sentence.

    >>> sentence("there is no 'aeg'; did you mean 'age'?")
    "There is no 'aeg'; did you mean 'age'?"
    """
    return message[:1].upper() + message[1:] + ("" if message.endswith((".", "?", "!")) else ".")
