# SPDX-License-Identifier: Apache-2.0
"""What pydantic finds wrong with a table, in the words of the project.

``tomlfile.validated`` puts file and line in front of each. Imported only when there is a fault,
because it needs pydantic.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfumato.wording import did_you_mean, either, got, listing, shown

__all__ = ["faults"]

KeyPath = tuple[str | int, ...]

_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "string": "a text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "a table",
    "model": "a table",
    "dataclass": "a table",
    "mapping": "a table",
    "date": "a date",
    "datetime": "a date and time",
    "time": "a time",
    "finite_number": "a finite number",
}

_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}


def faults(
    error: ValidationError, model: type[BaseModel], data: object
) -> list[tuple[KeyPath, str]]:
    """One (path inside ``data``, message) per fault; alternatives of a union are one fault."""
    out: dict[KeyPath, list[str]] = {}
    expected: dict[KeyPath, tuple[list[str], object]] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(data, detail["loc"])
        wanted = _expected(detail)
        if wanted:
            words, _ = expected.setdefault(path, ([], detail["input"]))
            if wanted not in words:
                words.append(wanted)
        else:
            out.setdefault(path, []).append(_message(detail, model, path))
    for path, (words, value) in expected.items():
        hint = did_you_mean(value, re.findall("'([^']*)'", " ".join(words)))
        out.setdefault(path, []).insert(0, f"expected {either(words)}, got {got(value)}{hint}")
    return [(path, message) for path, messages in out.items() for message in messages]


def _path_in(data: object, loc: Sequence[str | int]) -> KeyPath:
    """``loc`` without the parts that are not in the data: names of union members, missing keys."""
    path: list[str | int] = []
    for part in loc:
        is_entry = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if is_entry or (isinstance(data, Mapping) and part in data):
            data = data[part]  # type: ignore[index]
            path.append(part)
    return tuple(path)


def _expected(detail: ErrorDetails) -> str:
    """What a fault of type or choice wanted; empty for other faults."""
    kind = detail["type"]
    if kind in ("literal_error", "enum"):
        return str(detail["ctx"]["expected"])
    for ending in ("_type", "_parsing", "_from_float", "_parsing_size"):
        name = kind.removesuffix(ending)
        if name != kind and name in _EXPECTED:
            return _EXPECTED[name]
    return _EXPECTED.get(kind, "")


def _message(detail: ErrorDetails, model: type[BaseModel], path: KeyPath) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return f"the key {shown(detail['loc'][-1])} is missing; add it"
    if kind == "extra_forbidden":
        known = sorted(_keys_at(model, path[:-1]))
        near = did_you_mean(path[-1], known)
        return f"unknown key{near or ';'} the keys allowed here are {', '.join(known)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag, allowed = context.get("tag"), str(context.get("expected_tags", ""))
        key = str(context["discriminator"]).strip("'")
        found = f"got {shown(tag)}" if tag is not None else "it is missing"
        near = did_you_mean(tag, (w.strip(" '") for w in allowed.split(",")))
        return f"the key {key!r} must be one of {allowed or 'the known kinds'}; {found}{near}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]}, got {got(detail['input'])}"
    if kind in ("too_short", "too_long"):
        most = kind == "too_long"
        count = context["max_length" if most else "min_length"]
        return f"needs at {'most' if most else 'least'} {count} entries, got {_length(detail)}"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    said = detail["msg"]
    return f"{said[:1].lower()}{said[1:]}, got {got(detail['input'])}"


def _length(detail: ErrorDetails) -> str:
    value = detail["input"]
    return str(len(value)) if isinstance(value, list | dict) else listing([value])


def _keys_at(model: type[BaseModel], path: KeyPath) -> set[str]:
    """The keys that a table at ``path`` inside the model may have."""
    here: list[type[BaseModel]] = [model]
    for part in path:
        if isinstance(part, str):
            fields = [m.model_fields[part] for m in here if part in m.model_fields]
            here = [m for f in fields for m in _models_in(f.annotation)] or here
    return {f.alias or name for m in here for name, f in m.model_fields.items()}


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
