# SPDX-License-Identifier: Apache-2.0
"""Write a domain as the ``[domain.NAME]`` tables that ``schema`` reads back to an equal domain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from itertools import groupby

from sfumato.domain.attributes import Attribute, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import SchemaError
from sfumato.tomlfile import toml_key, toml_text
from sfumato.wording import shown

__all__ = ["toml_list", "toml_value", "write_domain"]

_LINE = 96


def write_domain(domain: Domain) -> str:
    """The ``[domain.NAME]`` tables as TOML; reading them gives an equal domain.

    >>> print(write_domain(Domain({"age": 100})), end="")
    [domain.age]
    kind = "integer"
    min = 0
    max = 99
    """
    return "\n".join(_attribute_table(attribute) for attribute in domain)


def _attribute_table(attribute: Attribute) -> str:
    header = f"domain.{toml_key(attribute.name)}"
    lines = [f"[{header}]", f'kind = "{attribute.kind}"', *_own_keys(attribute)]
    if attribute.outside != "drop":
        lines.append(f'outside = "{attribute.outside}"')
    if attribute.nulls != "drop":
        lines.append(f'nulls = "{attribute.nulls}"')
    for level in attribute.levels:
        members: list[list[int]] = [[] for _ in level.groups]
        for code, group in enumerate(level.group_of):
            if group >= 0:
                members[group].append(code)
        lines += ["", f"[{header}.levels.{toml_key(level.name)}]"]
        lines += [
            f"{toml_key(group)} = {_members(attribute, codes)}"
            for group, codes in zip(level.groups, members, strict=True)
        ]
    return "\n".join([*lines, ""])


def _own_keys(attribute: Attribute) -> list[str]:
    if isinstance(attribute, Category):
        return [f"values = {toml_list(attribute.values)}"]
    if isinstance(attribute, Integer):
        width = [] if attribute.width == 1 else [f"width = {attribute.width}"]
        return [f"min = {attribute.min}", f"max = {attribute.max}", *width]
    if isinstance(attribute, Numeric):
        return [f"edges = {toml_list(attribute.edges)}"]
    if isinstance(attribute, DateTime):
        return [
            f"start = {toml_value(attribute.start)}",
            f"end = {toml_value(attribute.end)}",
            f"step = {toml_value(attribute.step)}",
        ]
    return []


def _members(attribute: Attribute, codes: Sequence[int]) -> str:
    """The members of a group: values, or one pair per run of consecutive bins."""
    if not isinstance(attribute, Integer | Numeric | DateTime):
        return toml_list([attribute.label(code) for code in codes])
    # Along a run of consecutive codes, code - position is constant.
    runs = [
        [code for _, code in run]
        for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0])
    ]
    pairs = [_pair(attribute, run[0], run[-1]) for run in runs]
    return toml_list(pairs[0] if len(pairs) == 1 else pairs)


def _pair(attribute: Integer | Numeric | DateTime, first: int, last: int) -> list[object]:
    """The bounds of consecutive bins, as ``levels`` reads them."""
    if isinstance(attribute, Integer):
        return [attribute.bounds(first)[0], attribute.bounds(last)[1]]
    if isinstance(attribute, Numeric):
        return [attribute.edges[first], attribute.edges[last + 1]]
    is_last = last + 1 == attribute.value_count
    return [attribute.bin_start(first), attribute.end if is_last else attribute.bin_start(last + 1)]


def toml_list(values: Sequence[object]) -> str:
    """A list as TOML, broken into lines when it is long."""
    words = [toml_value(v) for v in values]
    flat = f"[{', '.join(words)}]"
    if len(flat) <= _LINE - 20:
        return flat
    rows = [""]
    for word in words:
        if rows[-1] and len(rows[-1]) + len(word) + 3 > _LINE - 2:
            rows.append("")
        rows[-1] += f" {word}," if rows[-1] else f"  {word},"
    return "\n".join(["[", *rows, "]"])


def toml_value(value: object) -> str:
    """A text, number, truth value, date or list as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time.min else value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise SchemaError(f"{shown(value)} cannot be written as TOML")
