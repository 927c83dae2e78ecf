# SPDX-License-Identifier: Apache-2.0
"""Schema files: exact round trips, lines found where they are, and no fault but SchemaError."""

from __future__ import annotations

import tempfile
import tomllib
from datetime import date
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain.domain import Domain, domain_from
from sfumato.domain.draft import draft
from sfumato.errors import SchemaError
from sfumato.toml import TomlFile, parse_toml, read_toml, toml_key, toml_text
from tests.shared import domain_strategies as ds


@given(ds.domains())
@ds.patient()
def test_a_written_domain_is_read_back_equal(domain):
    again = domain_from(parse_toml(domain.to_toml()))
    assert again == domain
    assert again.digest() == domain.digest()
    assert again.to_toml() == domain.to_toml()


@given(ds.texts)
@ds.patient()
def test_texts_and_keys_survive_toml(text):
    assert tomllib.loads(f"{toml_key(text)} = {toml_text(text)}") == {text: text}


# --- lines ---------------------------------------------------------------------------------------
# Documents in which every leaf is a different number of six digits that occurs nowhere else: the
# line of the leaf is then known by searching the text for it.

_noise = st.sampled_from(["", "# [not.a.table]", "# key = 1", "   ", "# \"'''"])
_tricky = st.sampled_from(
    [
        '"""a\n[b]\n#"""',
        "'''x = 1\n''''",
        '"]"',
        "'{'",
        '"\\"#"',
        '"""q"""""',
        "1979-05-27 07:32:00",
        "3.14",
    ]
)
_keys = st.sampled_from(["a", "b.c", "d", '"e f"', "'g.h'", "i . 'j'", '"k\\n"', "3"])


@st.composite
def _values(draw: st.DrawFn, counter: list[int], depth: int = 0) -> str:
    form = draw(
        st.sampled_from(["leaf", "leaf", "tricky", "list", "inline"] if depth < 3 else ["leaf"])
    )
    if form == "leaf":
        counter[0] += 1
        return str(100_000 + counter[0])
    if form == "tricky":
        return draw(_tricky)
    gap = draw(st.sampled_from(["", " ", "\n", " # ]\n  ", "\n\n"])) if form == "list" else " "
    if form == "list":
        inner = [draw(_values(counter, depth + 1)) for _ in range(draw(st.integers(0, 3)))]
        return f"[{gap}" + f",{gap}".join(inner) + (f",{gap}" if inner else "") + "]"
    keys = draw(st.lists(_keys, max_size=3, unique=True))
    return "{" + ", ".join(f"{k} = {draw(_values(counter, depth + 1))}" for k in keys) + " }"


@st.composite
def _documents(draw: st.DrawFn) -> str:
    counter = [0]
    lines: list[str] = []
    headers = draw(
        st.lists(st.sampled_from(["t", 't."u v"', "w.x", "'y'"]), max_size=3, unique=True)
    )
    headers = ["", *(f"[{h}]" for h in headers)]
    headers += [
        f"[[{h}]]" for h in draw(st.lists(st.sampled_from(["m", "n.o", '"p q"']), max_size=4))
    ]
    for header in headers:
        lines += [draw(_noise), header] if header else []
        for key in draw(st.lists(_keys, max_size=3, unique=True)):
            lines += [draw(_noise), f"{key} = {draw(_values(counter))}"]
        if header == "[[m]]" and draw(st.booleans()):
            lines += ["[m.inside]", f"z = {draw(_values(counter))}"]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def _leaves(data: object, path: tuple[str | int, ...] = ()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _leaves(value, (*path, i))
    else:
        yield path, data


@given(_documents())
@ds.patient(200)
def test_the_line_of_every_value_is_the_line_it_stands_on(text):
    file = parse_toml(text)
    for path, value in _leaves(file.data):
        line = file.line_of(path)
        assert line is not None
        if isinstance(value, int):
            start = text.index(str(value))
            written = text.count("\n", 0, start) + 1
            # A key and its value stand on one line, and so does an entry of a list.
            assert line == written
    assert set(file._lines) == {p[:i] for p in _paths(file.data) for i in range(1, len(p) + 1)}


def _paths(data: object, path: tuple[str | int, ...] = ()):
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _paths(value, (*path, key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _paths(value, (*path, i))


# --- fuzz ----------------------------------------------------------------------------------------


def _only_schema_errors(file: TomlFile) -> None:
    domain, message = _read(file)
    assert message.startswith(file.name) if domain is None else not message
    if domain is not None:
        assert domain_from(parse_toml(domain.to_toml())) == domain


def _read(file: TomlFile) -> tuple[Domain | None, str]:
    try:
        return domain_from(file), ""
    except SchemaError as error:
        return None, str(error)


@given(st.text() | st.text("[]{}=.,\"'\n#ab01- domainkvlues"))
@ds.patient(300)
def test_any_text_is_read_or_refused_with_a_schema_error(text):
    try:
        file = parse_toml(text, "some.toml")
    except SchemaError as error:
        message = str(error)
    else:
        message = "some.toml"
        _only_schema_errors(file)
    assert message.startswith("some.toml")


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
@ds.patient()
def test_any_bytes_in_a_file_are_read_or_refused_with_a_schema_error(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.toml"
        path.write_bytes(content)
        try:
            file = read_toml(path)
        except SchemaError as error:
            message = str(error)
        else:
            message = file.name
            _only_schema_errors(file)
        assert message.startswith(str(path))


_KEYS = st.sampled_from(
    ["kind", "values", "min", "max", "width", "edges", "bins", "start", "end", "step"]
) | st.sampled_from(["outside", "nulls", "levels", "of", "a", "b", "1"])
_WORDS = st.sampled_from(
    ["category", "integer", "numeric", "datetime", "boolean", "hierarchy", "drop", "other"]
) | st.sampled_from(["clamp", "missing", "day", "1-2", "0+", "a", "b", "l", "2024-01-01", "1"])
_scalars = st.one_of(
    _WORDS,
    st.text(max_size=3),
    st.integers(-5, 5),
    st.integers(-(2**20000), 2**20000),
    st.floats(),
    st.booleans(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.times(),
)
_anything = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
_kinds = st.sampled_from(["category", "integer", "numeric", "datetime", "boolean", "hierarchy"])
_levels = st.dictionaries(
    st.sampled_from(["l", "m"]),
    st.dictionaries(_KEYS, _WORDS | st.lists(_scalars, max_size=3), max_size=4) | _anything,
    max_size=2,
)
_dates = st.dates() | st.datetimes() | _scalars
_tables = st.fixed_dictionaries(
    {"kind": _kinds | _anything},
    optional={
        "values": st.lists(_WORDS, max_size=4, unique=True) | _anything,
        "min": st.integers(-5, 5) | _anything,
        "max": st.integers(0, 9) | _anything,
        "width": st.integers(1, 3) | _anything,
        "edges": st.lists(st.floats(), max_size=4).map(sorted) | _anything,
        "bins": st.integers(-1, 5) | _anything,
        "start": _dates,
        "end": _dates,
        "step": _WORDS | _anything,
        "outside": _WORDS | _anything,
        "nulls": _WORDS | _anything,
        "levels": _levels | _anything,
        "extra": _anything,
    },
)


@given(st.dictionaries(_KEYS | st.text(min_size=1), _tables | _anything, max_size=3) | _anything)
@ds.patient(400)
def test_any_tables_are_read_or_refused_with_a_schema_error(tables):
    _only_schema_errors(TomlFile("some.toml", "", {"domain": tables}))


@given(_kinds, _levels, st.lists(_WORDS, max_size=5, unique=True), st.integers(0, 5))
@ds.patient(400)
def test_any_levels_are_read_or_refused_with_a_schema_error(kind, levels, values, high):
    own = {
        "category": {"values": values},
        "integer": {"min": 0, "max": high},
        "numeric": {"min": 0, "max": high, "bins": 3},
        "datetime": {"start": date(2024, 1, 1), "end": date(2024, 1, 2 + high)},
    }
    table = {"kind": kind, "levels": levels, **own.get(kind, {})}
    _only_schema_errors(TomlFile("some.toml", "", {"domain": {"x": table}}))


_TYPES = ["int64", "!int8", "uint16", "string", "!string", "boolean", "float64", "date", "time"]
_TYPES += ["timestamp(6)", "timestamp('UTC')", "decimal(10,2)", "decimal(10, 0)", "json", "uuid"]
_TYPES += ["array<int64>", "struct<a: int64>", "binary", "", "unknown"]


@given(st.dictionaries(ds.names, st.sampled_from(_TYPES) | st.text(), min_size=1, max_size=5))
@ds.patient()
def test_a_draft_is_valid_toml_that_names_each_line_to_fill_in(column_types):
    drafted = draft(column_types)
    file = parse_toml(drafted.text, "draft.toml")
    tables = file.data.get("domain", {})
    assert set(tables) <= set(column_types)
    marked = [n for n, row in enumerate(drafted.text.split("\n"), 1) if ' = "FILL IN' in row]
    domain, message = _read(file)
    if domain is not None:
        assert not marked
        assert all(table["kind"] == "boolean" for table in tables.values())
    elif tables:
        named = message.split("\n")
        assert all(f"line {n}: " in row for n, row in zip(marked, named, strict=True))
