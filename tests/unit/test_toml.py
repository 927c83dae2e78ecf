# SPDX-License-Identifier: Apache-2.0
"""TOML files: reading, lines, and pydantic's faults in our words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sfumato.errors import BudgetError, SchemaError
from sfumato.toml import (
    LIMITS,
    STRICT,
    parse_toml,
    read_toml,
    validated,
)

TEXT = """\
# comment with [brackets] and a = 1
top = 1
dotted.key."quoted part" = 2

[domain.age]           # line 5
kind = "integer"
values = [
  1, 2,
  3,    # ]
  {x = 1, "y z" = [4,
     5]},
]
text = '''
[not.a.table]
key = "no"
'''

["other table".'sub']
inline = {a = 1, b.c = 2}

[[workload]]
marginals = 2
[[workload]]
prefix = "age"
[workload.options]
by = ["sex"]
[[workload.parts]]
x = 1
[[workload.parts]]
y = 2024-01-01 10:00:00
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("dotted",), 3),
        (("dotted", "key", "quoted part"), 3),
        (("domain",), 5),
        (("domain", "age"), 5),
        (("domain", "age", "kind"), 6),
        (("domain", "age", "values"), 7),
        (("domain", "age", "values", 0), 8),
        (("domain", "age", "values", 1), 8),
        (("domain", "age", "values", 2), 9),
        (("domain", "age", "values", 3), 10),
        (("domain", "age", "values", 3, "y z", 0), 10),
        (("domain", "age", "values", 3, "y z", 1), 11),
        (("domain", "age", "text"), 13),
        (("other table", "sub"), 18),
        (("other table", "sub", "inline", "b", "c"), 19),
        (("workload",), 21),
        (("workload", 0), 21),
        (("workload", 0, "marginals"), 22),
        (("workload", 1), 23),
        (("workload", 1, "prefix"), 24),
        (("workload", 1, "options", "by", 0), 26),
        (("workload", 1, "parts", 0, "x"), 28),
        (("workload", 1, "parts", 1), 29),
        (("workload", 1, "parts", 1, "y"), 30),
        # what is not there is reported at what surrounds it
        (("domain", "age", "max"), 5),
        (("workload", 1, "weight"), 23),
        (("top", "x", 3), 2),
        (("nowhere",), None),
        ((), None),
    ],
)
def test_line_of_finds_tables_keys_and_entries(path, line):
    assert parse_toml(TEXT).line_of(path) == line


def test_a_table_that_is_opened_after_its_parts_stands_where_it_is_opened():
    file = parse_toml("[a.b]\nx = 1\n[a]\ny = 2")
    assert file.line_of(("a",)) == 3
    assert file.line_of(("a", "b")) == 1


def test_windows_line_ends_and_byte_order_marks_do_not_move_lines(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\n\r\n[b]\r\nc = 2\r\n")
    file = read_toml(path)
    assert file.data == {"a": 1, "b": {"c": 2}}
    assert file.line_of(("b", "c")) == 4
    assert file.folder == tmp_path


def test_deep_nesting_is_read_or_refused_but_never_overflows():
    for depth in (10, 100):
        file = parse_toml("\na = " + "[" * depth + "]" * depth)
        assert file.line_of(("a", *([0] * (depth - 1)))) == 2
    for opened, closed in ("[]", ("{a = ", "1}")):
        with pytest.raises(SchemaError, match="line 2: lists or tables are nested more than 100"):
            parse_toml("\na = " + opened * 100_000 + closed * 100_000)
    with pytest.raises(SchemaError, match=r"line 2: .* nested more than 100 deep"):
        parse_toml("\na = " + "[" * 101 + "]" * 101)


@pytest.mark.parametrize("word", ["1" * 5000, "0x" + "f" * 5000, "1_" * 3000 + "0"])
def test_very_long_numbers_are_refused_with_their_line(word):
    with pytest.raises(SchemaError, match=r"^TOML text, line 2: a number or a key has more than"):
        parse_toml(f"a = 1\nb = {word}\nc = 3")


def test_very_many_tables_are_refused_before_they_are_read():
    for header in ("[a{}]", "[[a]]"):
        text = "\n".join(header.format(i) for i in range(LIMITS.tables + 1))
        with pytest.raises(SchemaError, match=r"line 10001: .* more than 10,000 tables"):
            parse_toml(text)
    lists = "\n".join(f"a{i} = [\n[1], [2],\n]" for i in range(LIMITS.tables // 2 + 1))
    assert parse_toml(lists).line_of(("a1", 1)) == 5


def test_the_lines_of_a_very_long_list_are_remembered_up_to_a_point():
    rows = LIMITS.entries_placed + 10
    file = parse_toml("a = [\n" + ",\n".join(["1"] * rows) + "\n]\nb = 2")
    assert file.line_of(("a", LIMITS.entries_placed - 1)) == LIMITS.entries_placed + 1
    assert file.line_of(("a", LIMITS.entries_placed + 5)) == 1
    assert file.line_of(("b",)) == rows + 3


# --- files that cannot be read -------------------------------------------------------------------


def message_of(path: Path | str) -> str:
    with pytest.raises(SchemaError) as caught:
        read_toml(path)
    return str(caught.value)


def test_a_missing_file_says_so(tmp_path):
    assert message_of(tmp_path / "no.toml").endswith(
        "no.toml: there is no such file; check the name and the folder"
    )


def test_a_text_is_not_the_name_of_a_file():
    message = message_of("[domain.age]\nkind = 'integer'\n")
    assert "got a text of 2 lines; write the text to a file" in message
    assert "domain.age" not in message


def test_a_folder_is_not_a_file(tmp_path):
    assert "is a folder; name the TOML file inside it" in message_of(tmp_path)


def test_a_name_that_no_file_can_have_is_refused():
    assert "cannot be read" in message_of("a\0b.toml")
    assert "cannot be read" in message_of("x" * 5000)


def test_other_encodings_are_refused_with_the_line(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes("\nb = 'caf\u00e9'\n".encode("latin-1"))
    assert "latin.toml, line 2: not UTF-8 text" in message_of(path)


def test_a_large_file_is_refused_and_the_largest_is_read(tmp_path):
    path = tmp_path / "large.toml"
    path.write_bytes(b"#" * LIMITS.file_bytes)
    assert read_toml(path).data == {}
    path.write_bytes(b"#" * (LIMITS.file_bytes + 1))
    assert "more than 10,000,000 bytes" in message_of(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = = 2\nc = 3", 2),
        ("a = 1\na = 2\n\n", 2),
        ("a = 1\n\nb = ", 3),
        ("a = 1\n[t\nb = 2", 2),
        ("a = 1\nb = 2024-02-30\nc = 3", 2),
        ("\na = '''\nx\ny", 4),
    ],
)
def test_invalid_toml_names_the_line(text, line):
    with pytest.raises(SchemaError, match=rf"^bad\.toml, line {line}: not valid TOML: [a-z]"):
        parse_toml(text, "bad.toml")


# --- validated -----------------------------------------------------------------------------------


class Inner(BaseModel):
    model_config = ConfigDict(**STRICT)
    size: Annotated[int, Field(gt=0)] = 1
    choice: Literal["left", "right"] = "left"


class Outer(BaseModel):
    model_config = ConfigDict(**STRICT)
    epsilon: float | None = None
    name: str | int = "x"
    inner: Inner = Inner()
    parts: list[Inner] = Field(default_factory=list, max_length=2)
    flag: bool = False

    @model_validator(mode="after")
    def _sensible(self) -> Outer:
        if self.name == "value error":
            raise ValueError("name is no name; choose another")
        if self.name == "own error":
            raise BudgetError("epsilon must be positive")
        return self


def faults_of(table: str) -> list[str]:
    file = parse_toml("[budget]\n" + table, "f.toml")
    with pytest.raises(SchemaError) as caught:
        validated(Outer, file.data["budget"], file, ("budget",))
    return str(caught.value).split("\n")


def test_a_valid_table_becomes_the_model():
    file = parse_toml("[budget]\nepsilon = 1\nparts = [{size = 2}]")
    model = validated(Outer, file.data["budget"], file, ("budget",))
    assert model.epsilon == 1.0
    assert model.parts == [Inner(size=2)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("epsilon = '1'", "line 2: budget.epsilon: expected a number, got the text '1'"),
        ("flag = 1", "line 2: budget.flag: expected true or false, got the integer 1"),
        ("name = 1.5", "line 2: budget.name: expected a text or an integer, got the number 1.5"),
        ("inner = 3", "line 2: budget.inner: expected a table, got the integer 3"),
        ("parts = 3", "line 2: budget.parts: expected a list, got the integer 3"),
        (
            "\n[budget.inner]\nsize = 0",
            "line 4: budget.inner.size: must be greater than 0, got the integer 0",
        ),
        (
            "[[budget.parts]]\n[[budget.parts]]\nchoice = 'rihgt'",
            "line 4: budget.parts #2.choice: expected 'left' or 'right', got the text 'rihgt'; "
            "did you mean 'right'?",
        ),
        ("parts = [{}, {}, {}]", "line 2: budget.parts: needs at most 2 entries, got 3"),
        (
            "epsilom = 1",
            "line 2: budget.epsilom: unknown key; did you mean 'epsilon'? the keys allowed here "
            "are epsilon, flag, inner, name, parts",
        ),
        (
            "parts = [\n{width = 1}]",
            "line 3: budget.parts #1.width: unknown key; the keys allowed here are choice, size",
        ),
        ("name = 'value error'", "line 1: budget: name is no name; choose another"),
        ("name = 'own error'", "line 1: budget: epsilon must be positive"),
    ],
)
def test_pydantic_faults_are_told_in_our_words(table, message):
    assert faults_of(table) == [f"f.toml, {message}"]


def test_many_faults_are_cut_short():
    found = faults_of("\n".join(f"k{i} = {i}" for i in range(30)))
    assert len(found) == 9
    assert found[0].startswith("f.toml, line 2: budget.k0: ")
    assert found[-1] == "f.toml: and 22 more faults of this kind"


def test_a_tagged_union_names_the_tag():
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Home(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    def message(text: str) -> str:
        file = parse_toml(text, "f.toml")
        with pytest.raises(SchemaError) as caught:
            validated(Home, file.data, file, ())
        return str(caught.value)

    assert message("[pet]\nkind = 'cta'") == (
        "f.toml, line 1: pet: the key 'kind' must be one of 'cat', 'dog'; got 'cta'; did you mean "
        "'cat'?"
    )
    assert message("[pet]\nlives = 9") == (
        "f.toml, line 1: pet: the key 'kind' must be one of the known kinds; it is missing"
    )
    assert message("[pet]\nkind = 'cat'\nlives = 'nine'") == (
        "f.toml, line 3: pet.lives: expected an integer, got the text 'nine'"
    )


MANY_PARTS = ["a" + ".a" * 200 + " = 1", "[" + "a." * 200 + "a]", "x = {" + "b." * 150 + "c = 2}"]


@pytest.mark.parametrize("text", MANY_PARTS)
def test_keys_of_very_many_parts_are_refused_at_once(text: str) -> None:
    """``tomllib`` takes quadratic time for them: 20,000 parts are ten seconds."""
    with pytest.raises(SchemaError, match="line 2: a key has more than 100 parts"):
        parse_toml("# first\n" + text + "\n")


def test_dots_in_texts_and_lists_are_no_keys() -> None:
    text = (
        'a = "' + "." * 500 + '"\nb = [' + "1.5, " * 300 + "]\nc = '''\n" + "x." * 300 + "\n'''\n"
    )
    assert len(parse_toml(text).data["b"]) == 300
