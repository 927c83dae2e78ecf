# SPDX-License-Identifier: Apache-2.0
"""TOML files whose faults are reported with the file and the line.

Every room that reads a table of a TOML file (``[domain.NAME]``, ``[[workload]]``, ``[budget]``,
``[data]``) does it in two steps: ``read_toml`` turns the file into a ``TomlFile``, ``validated``
turns one of its tables into a pydantic model. Whatever is wrong becomes one ``SchemaError`` that
says where (file, line, key), what was found, what is allowed and what to do:

    release.toml, line 12: domain.age.max: expected an integer, got the text 'ninety'

A TOML file is public (it holds the schema and the questions, never the data), so messages may
repeat what it says. The faults that pydantic reports are put into the words of the project
(``faults``); pydantic is imported on first use only.
"""

from __future__ import annotations

import json
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from sfumato.errors import SchemaError, SfumatoError
from sfumato.text import did_you_mean, either, got, listing, shown

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict, ValidationError
    from pydantic_core import ErrorDetails

__all__ = [
    "LIMITS",
    "STRICT",
    "KeyPath",
    "TomlFile",
    "TomlLimits",
    "faults",
    "parse_toml",
    "read_toml",
    "toml_key",
    "toml_text",
    "validated",
]


if TYPE_CHECKING:
    ModelT = TypeVar("ModelT", bound=BaseModel)


KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TomlLimits:
    """Sizes of a file that are refused, since ``tomllib`` takes long for them."""

    file_bytes: int = 10_000_000
    """Bytes of a file: a larger one is rather the data than its schema."""
    parts: int = 100
    """Parts of a dotted key, each of which is a table."""
    depth: int = 100
    """Lists and tables inside each other, which are parsed recursively."""
    tables: int = 10_000
    """Headers ``[a]`` and ``[[a]]``; the time grows with their square."""
    word: int = 4_000
    """Characters of a number, a date or a bare key; long integers are slow to read."""
    entries_placed: int = 50_000
    """Entries of one list whose lines are remembered; the others have the line of the list."""


LIMITS: Final = TomlLimits()

_TOKEN: Final = re.compile(
    r"""
    (?P<string> \"{3} (?:\\.|[^\\])*? \"{3,5} | \'{3} .*? \'{3,5}
              | \" (?:\\.|[^"\\\n])* \" | \' [^'\n]* \' )
  | (?P<skip> \#[^\n]* | [ \t\r]+ )
  | (?P<newline> \n )
  | (?P<mark> [\[\]{}=,.] )
  | (?P<word> [^\s\[\]{}=,."'\#]+ )
    """,
    re.VERBOSE | re.DOTALL,
)

# For the pydantic models of tables: no silent conversion ("90" is not 90), no unknown key.
STRICT: Final[ConfigDict] = {"extra": "forbid", "strict": True, "frozen": True}


@dataclass(frozen=True)
class TomlFile:
    """A TOML document: what it says (``data``), its source ``text``, and how to call it.

    ``folder`` is where relative paths inside it start; None for text that is not a file.
    """

    name: str
    text: str
    data: Mapping[str, object]
    folder: Path | None = None

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return _Scanner(self.text).lines()

    def line_of(self, path: KeyPath) -> int | None:
        """The line (from 1) of a table, key or list entry, or of the nearest one around it.

        >>> file = parse_toml("[budget]\\nepsilon = 1.0")
        >>> file.line_of(("budget", "epsilon")), file.line_of(("budget", "delta"))
        (2, 1)
        """
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return None

    def error(self, message: str, at: KeyPath = ()) -> SchemaError:
        """A ``SchemaError`` that says where the fault is.

        >>> str(parse_toml("[budget]", "release.toml").error("is empty", ("budget",)))
        'release.toml, line 1: budget: is empty'
        """
        line = self.line_of(at)
        place = self.name if line is None else f"{self.name}, line {line}"
        key = dotted(at)
        return SchemaError(f"{place}: {key}: {message}" if key else f"{place}: {message}")


def read_toml(path: str | Path) -> TomlFile:
    """Read a TOML file; every way this can fail is a ``SchemaError`` that says what to do."""
    if not isinstance(path, str | PathLike):
        raise SchemaError(f"expected the name of a TOML file, got {shown(path)}")
    if "\n" in str(path):
        raise SchemaError(
            f"expected the name of a TOML file, got a text of {len(str(path).splitlines()):,} "
            "lines; write the text to a file and give its name"
        )
    path = Path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(LIMITS.file_bytes + 1)
    except FileNotFoundError:
        raise SchemaError(f"{path}: there is no such file; check the name and the folder") from None
    except IsADirectoryError:
        raise SchemaError(f"{path} is a folder; name the TOML file inside it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SchemaError(
            f"{shown(str(path))} cannot be read ({reason}); check its name and its permissions"
        ) from None
    if len(raw) > LIMITS.file_bytes:
        raise SchemaError(
            f"{path} holds more than {LIMITS.file_bytes:,} bytes, the most that a TOML file may "
            "have; if this is the data, name it as source in the table [data] instead"
        )
    try:
        # TOML is UTF-8; some editors put a byte-order mark in front.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SchemaError(
            f"{path}, line {line}: not UTF-8 text, which TOML must be; save the file as UTF-8"
        ) from None
    return parse_toml(text, str(path), folder=path.parent)


def parse_toml(text: str, name: str = "TOML text", folder: Path | None = None) -> TomlFile:
    """Parse TOML text; ``name`` is what messages call it."""
    _check_size(text, name)
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        raise _invalid(text, name, str(error)) from None
    return TomlFile(name, text, data, folder)


def _check_size(text: str, name: str) -> None:
    """Refuse what takes ``tomllib`` long: very many tables, long keys and numbers, deep nesting."""
    parts = depth = tables = 0
    is_start, fault = True, ""  # of a line
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "mark":
            mark = token[0]
            parts = parts + 1 if mark == "." else 0
            tables += is_start and mark == "[" and depth == 0
            depth += (mark in "[{") - (mark in "]}")
        elif kind == "newline":
            parts = 0
        if parts > LIMITS.parts:
            fault = f"a key has more than {LIMITS.parts} parts; use shorter keys"
        elif depth > LIMITS.depth:
            fault = f"lists or tables are nested more than {LIMITS.depth} deep; write it flatter"
        elif tables > LIMITS.tables:
            fault = f"the file has more than {LIMITS.tables:,} tables; declare and ask for fewer"
        elif kind == "word" and token.end() - token.start() > LIMITS.word:
            fault = f"a number or a key has more than {LIMITS.word:,} characters; shorten it"
        if fault:
            line = text.count("\n", 0, token.start()) + 1
            raise SchemaError(f"{name}, line {line}: {fault}")
        if kind != "skip":
            is_start = kind == "newline"


def _invalid(text: str, name: str, reason: str) -> SchemaError:
    """The error of ``tomllib`` with the line in front."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", reason, re.S)
    if match and match[2]:
        line, message = int(match[2]), f"{match[1]} (column {match[3]})"
    else:  # the fault was seen at the end of the text
        line, message = text.rstrip().count("\n") + 1, match[1] if match else reason
    return SchemaError(f"{name}, line {line}: not valid TOML: {message[:1].lower() + message[1:]}")


def validated(model: type[ModelT], data: object, file: TomlFile, at: KeyPath) -> ModelT:
    """Return the table ``data``, which stands at ``at`` in ``file``, as a pydantic model.

    All faults are reported together, one line each, in the order of the file. Give the model
    ``model_config = STRICT`` to forbid unknown keys (the message then suggests a near one).
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        placed = [(at + path, message) for path, message in faults(error, model, data)]
    except SfumatoError as error:  # raised on purpose by a validator of the model
        raise file.error(str(error), at) from None
    placed.sort(key=lambda fault: file.line_of(fault[0]) or 0)
    messages = [str(file.error(message, path)) for path, message in placed]
    most = 8
    if len(messages) > most:
        messages[most:] = [f"{file.name}: and {len(messages) - most} more faults of this kind"]
    raise SchemaError("\n".join(messages))


def dotted(path: KeyPath) -> str:
    """Return a path as it is written in TOML; entries of a list are counted from 1.

    >>> dotted(("domain", "hours per week", "values", 2))
    'domain."hours per week".values #3'
    """
    out = ""
    for part in path:
        out += f" #{part + 1}" if isinstance(part, int) else f".{toml_key(part)}"
    return out.removeprefix(".")


def toml_key(key: str) -> str:
    """Return a key as TOML: bare if it can be, else quoted."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_text(key)


def toml_text(text: str) -> str:
    """Return a text as a TOML string on one line.

    >>> print(toml_text('a "b"'))
    "a \\"b\\""
    """
    # TOML escapes as JSON does, and DEL besides.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Scanner:
    """The lines of all tables, keys and list entries of a *valid* TOML text.

    The text has been parsed, so this only has to find where things are, not what is allowed.
    Tokens are read one at a time: a text of megabytes has millions of them. Entries far down a
    long list have the line of the list.
    """

    def __init__(self, text: str) -> None:
        self._tokens = (m for m in _TOKEN.finditer(text) if m.lastgroup != "skip")
        self._lines: dict[KeyPath, int] = {}
        self._tables_in: dict[KeyPath, int] = {}
        self._next_line = 1
        self._advance()

    def _advance(self) -> None:
        """Move to the next token: its text, its line, and the text again if it is a mark."""
        token = next(self._tokens, None)
        self._is_over = token is None
        self._text = "" if token is None else token[0]
        self._line = self._next_line
        self._next_line += self._text.count("\n")
        is_mark = token is not None and token.lastgroup in ("mark", "newline")
        self._mark = self._text if is_mark else ""

    def lines(self) -> dict[KeyPath, int]:
        """Path to line, for everything in the text."""
        table: KeyPath = ()
        while not self._is_over:
            if self._mark == "\n":
                self._advance()
            elif self._mark == "[":
                table = self._header()
            else:
                self._value(self._assignment(table))
        return self._lines

    def _header(self) -> KeyPath:
        line = self._line
        self._advance()
        is_list = self._mark == "["
        if is_list:
            self._advance()
        path: KeyPath = ()
        keys = self._key()
        for _ in range(2 if is_list else 1):
            self._advance()
        for key in keys:
            if path in self._tables_in:  # a.b inside [[a]] is in its last table
                path += (self._tables_in[path] - 1,)
            path += (key,)
            self._lines.setdefault(path, line)
        if is_list:
            self._tables_in[path] = self._tables_in.get(path, 0) + 1
            path += (self._tables_in[path] - 1,)
        self._lines[path] = line
        return path

    def _key(self) -> list[str]:
        """A dotted key; moves to the token after it."""
        parts: list[str] = []
        while True:
            text = self._text
            parts.append(tomllib.loads(f"k = {text}")["k"] if text[0] in "\"'" else text)
            self._advance()
            if self._mark != ".":
                return parts
            self._advance()

    def _assignment(self, table: KeyPath) -> KeyPath:
        """``key =``: the path of the key; moves to its value."""
        path, line = table, self._line
        for key in self._key():
            path += (key,)
            self._lines.setdefault(path, line)
        self._advance()
        return path

    def _value(self, path: KeyPath) -> None:
        """A value, with the entries of lists and the keys of inline tables inside it."""
        inside: list[tuple[KeyPath, int | None]] = []  # (path, entry; None for a table)
        expects_key = False
        while not self._is_over:
            mark = self._mark
            if mark == "\n" and not inside:
                return
            if expects_key and mark not in ("\n", "}"):
                path, expects_key = self._assignment(inside[-1][0]), False
                continue
            entry = inside[-1][1] if inside else None
            if mark in ("]", "}"):
                inside.pop()
                expects_key = False
            elif mark == ",":
                expects_key = entry is None
                inside[-1] = (inside[-1][0], None if entry is None else entry + 1)
            elif mark in ("", "[", "{"):
                if entry is not None:
                    path = (*inside[-1][0], entry)
                    if entry < LIMITS.entries_placed:
                        self._lines.setdefault(path, self._line)
                if mark:
                    inside.append((path, 0 if mark == "[" else None))
                    expects_key = mark == "{"
            self._advance()


# Faults that pydantic reports, in the words of the project

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
    """Return (path inside ``data``, message) of each fault; alternatives of a union are one."""
    out: dict[KeyPath, list[str]] = {}
    expected: dict[KeyPath, tuple[list[str], object]] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(data, detail["loc"])
        alternative = _expected(detail)
        if alternative:
            alternatives, _ = expected.setdefault(path, ([], detail["input"]))
            if alternative not in alternatives:
                alternatives.append(alternative)
        else:
            out.setdefault(path, []).append(_message(detail, model, path))
    for path, (alternatives, value) in expected.items():
        hint = did_you_mean(value, re.findall("'([^']*)'", " ".join(alternatives)))
        message = f"expected {either(alternatives)}, got {got(value)}{hint}"
        out.setdefault(path, []).insert(0, message)
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
    """The type or the choices that a value should have had; empty for other faults."""
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
        keys = sorted(_keys_at(model, path[:-1]))
        near = did_you_mean(path[-1], keys)
        return f"unknown key{near or ';'} the keys allowed here are {', '.join(keys)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag, allowed = context.get("tag"), str(context.get("expected_tags", ""))
        key = str(context["discriminator"]).strip("'")
        fault = f"got {shown(tag)}" if tag is not None else "it is missing"
        near = did_you_mean(tag, (w.strip(" '") for w in allowed.split(",")))
        return f"the key {key!r} must be one of {allowed or 'the known kinds'}; {fault}{near}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]}, got {got(detail['input'])}"
    if kind in ("too_short", "too_long"):
        most = kind == "too_long"
        count = context["max_length" if most else "min_length"]
        return f"needs at {'most' if most else 'least'} {count} entries, got {_length(detail)}"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    message = detail["msg"]
    return f"{message[:1].lower()}{message[1:]}, got {got(detail['input'])}"


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
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
