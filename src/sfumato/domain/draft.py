# SPDX-License-Identifier: Apache-2.0
"""Draft a schema file from column types, for a person to complete.

A type says which kind of attribute a column can be, and nothing more: ranges and lists of values
must come from public knowledge, because reading them off the data would reveal which values
occur. The draft therefore holds placeholders; ``schema`` refuses it, naming each line, until a
person has replaced them.

A column without a type is guessed from its name alone (`guessed`): ``age`` counts years,
``created_at`` is a time, ``is_member`` is yes or no. Words are looked up in the order below, and
what no rule knows is a category. Some names say what everybody knows: an hour is 0 to 23, a
latitude -90 to 90, a country is one of a public list. A guess is marked as such in the draft.

Privacy: the draft is a function of column names and types (and of lists that the caller vouches
for), which are public; no row is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sfumato.domain.attributes import Category, is_text
from sfumato.domain.schema import FILL_IN, toml_list
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, shown
from sfumato.toml import toml_key, toml_text

__all__ = [
    "Draft",
    "Guess",
    "draft",
    "guessed",
    "next_release_file",
    "release_file",
]


Kind = Literal["category", "boolean", "integer", "numeric", "datetime"]


# What a column probably holds, from its name alone


@dataclass(frozen=True, slots=True)
class Guess:
    """A kind, and what goes without saying for such a name; ``is_default`` if no rule knows it.

    ``is_identifier``: of texts; of whole numbers only where ``is_number_of_record``, too.
    """

    kind: Kind
    bounds: tuple[int, int] | None = None
    public_list: str | None = None
    is_identifier: bool = False
    is_number_of_record: bool = False
    is_default: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Names that say all: range or list.
_WELL_KNOWN: Final[dict[str, Guess]] = {
    "age": Guess("integer", (0, 120)),
    "hour": Guess("integer", (0, 23)),
    "minute": Guess("integer", (0, 59)),
    "month": Guess("integer", (1, 12)),
    "day": Guess("integer", (1, 31)),
    "latitude": Guess("numeric", (-90, 90)),
    "longitude": Guess("numeric", (-180, 180)),
    "lat": Guess("numeric", (-90, 90)),
    "lon": Guess("numeric", (-180, 180)),
    "lng": Guess("numeric", (-180, 180)),
    "country": Guess("category", public_list="iso-countries-names"),
    "nationality": Guess("category", public_list="iso-countries-names"),
    "weekday": Guess("category", public_list="weekdays"),
    "dayofweek": Guess("category", public_list="weekdays"),
    "day of week": Guess("category", public_list="weekdays"),
    "country code": Guess("category", public_list="iso-countries"),
    "us state": Guess("category", public_list="us-states"),
    "state code": Guess("category", public_list="us-states"),
}

_IDENTIFIERS: Final = _set(
    "id ids uuid guid key name names firstname lastname surname email mail phone url link ssn "
    "address street comment comments description text title notes note ticket account username "
    "plate vin image picture"
)
_RECORD_NUMBERS: Final = _set("id ids uuid guid")
_CATEGORIES: Final = _set(
    "code type class category group status zip zipcode postcode postal plz postleitzahl sex "
    "gender race ethnicity color colour kind brand make model city county region district "
    "neighbourhood neighborhood state method mode channel segment department occupation job "
    "education marital cut clarity quality condition reason result outcome grade gender species "
    "country currency language"
)
_TRUTHS: Final = _set(
    "flag indicator survived smoker deceased fraud churn churned active enabled verified deleted "
    "cancelled canceled diverted arrest domestic alive married employed default refunded returned "
    "subscribed pregnant diabetic exited"
)
_TRUTH_STARTS: Final = _set("is has had was were did does can ever whether")
_TIMES: Final = _set("date datetime timestamp dob birthday birthdate")
_WHOLE: Final = _set(
    "age ages year years yr count counts quantity qty children kids dependents siblings rooms "
    "bedrooms beds bathrooms floors stories seats passengers visits purchases orders hour hours "
    "minute minutes day days month months week weeks rank ranking population deaths cases births "
    "votes goals points views likes followers reviews nights stops trips items employees persons "
    "people members households cylinders gears pregnancies absences vaccinations tests "
    "recency frequency tenure installments inquiries"
)
_WHOLE_STARTS: Final = _set("num n nb number no cnt total count")
_NUMBERED: Final = _set("number nbr no num nr")  # invoice_no: a number that names
_REAL: Final = _set(
    "income salary wage wages earnings price prices cost costs amount amt fee fees fare fares "
    "total subtotal balance revenue sales profit charge charges tax taxes tip tips discount "
    "payment pay spend spending budget loan debt limit premium rent value values rate rates ratio "
    "percent percentage pct share fraction proportion probability weight height length width depth "
    "thickness diameter radius distance dist miles mileage km area sqft acres size volume "
    "latitude longitude lat lon lng temperature temp humidity pressure speed wind rainfall "
    "precipitation bmi glucose insulin cholesterol dose concentration density ph acidity sugar "
    "alcohol sulphates chlorides dioxide score index mean avg average median std variance min max "
    "duration elapsed delay gdp expectancy surcharge gain loss carat mpg hp displacement mass "
    "toll tolls extra qsec drat wt disp"
)


def guessed(name: str) -> Guess:
    """What a column of this name probably holds.

    >>> [guessed(name).kind for name in ("Age", "created_at", "is_member", "totalPrice", "sex")]
    ['integer', 'datetime', 'boolean', 'numeric', 'category']
    """
    words = _words(name)
    if not words:
        return Guess("category", is_default=True)
    for whole in (" ".join(words), "".join(words)):
        if whole in _WELL_KNOWN:
            return _WELL_KNOWN[whole]
    first, last = words[0], words[-1]
    if last in _IDENTIFIERS:
        is_number = last in _RECORD_NUMBERS
        return Guess("category", is_identifier=True, is_number_of_record=is_number)
    if len(words) > 1 and first in _TRUTH_STARTS:
        return Guess("boolean")
    if len(words) > 1 and last in _NUMBERED and first not in _WHOLE_STARTS:
        return Guess("category")
    if not _TIMES.isdisjoint(words) or (len(words) > 1 and last in ("at", "time", "on")):
        return Guess("datetime")
    if last in _CATEGORIES:
        return Guess("category")
    if last in _TRUTHS:
        return Guess("boolean")
    if len(words) > 1 and first in _WHOLE_STARTS and last not in _REAL:
        return Guess("integer")
    for word in (last, *reversed(words[:-1])):
        if word in _REAL:
            return Guess("numeric")
        if word in _WHOLE:
            return Guess("integer")
        if word in _TRUTHS:
            return Guess("boolean")
        if word in _CATEGORIES:
            return Guess("category")
    return Guess("category", is_default=True)


def _words(name: str) -> tuple[str, ...]:
    """The words of a name without capitals and numbers: ``tpepPickup_datetime2`` has three."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", spaced)
    return tuple(re.findall(r"[a-z]+", spaced.lower()))


# The draft of a schema file


_HEADER = """\
# A draft of the domain: which values each column may hold, decided before the data is looked at.
#
# Replace every "FILL IN" from public knowledge: the design of the form, a code book, legal limits,
# published statistics. A range or a list read off the data is not public: it reveals which values
# occur. Values outside what you declare do no harm: they go where `outside` says.
#
# Delete the table of each column that no query needs (names, identifiers, free text).
#
# Lists of values can come from a public file, values_file = "countries.csv", or by name:
# list = "iso-countries" (us-states, weekdays, months, five-year-ages). What nobody can list or
# bound may be discovered for a part of the budget (sf.plan_discovery): values, edges, min and max,
# or start and end = "discover" in place of "FILL IN".
#
# outside   where values go that are not declared: "drop" the record, an "other" cell of their
#           own, or (ranges only) "clamp" to the nearest bin
# nulls     "drop" the record, or a "missing" cell of their own
"""

_UNTYPED_HEADER = """\
# This file has no types, and none are read off its values: the kinds are guesses from the names of
# the columns. Where one is wrong, replace kind and what follows by one of these:
#
#   a list of texts   kind = "category", values = ["yes", "no"], outside = "other"
#   whole numbers     kind = "integer", min = 0, max = 120, outside = "clamp"
#   other numbers     kind = "numeric", edges = [0, 1000, 5000, 20000], outside = "clamp"
#   dates and times   kind = "datetime", start = 2024-01-01, end = 2025-01-01, step = "month"
#   yes or no         kind = "boolean"
#
# (one key = value on each line). Decimal commas, formats of dates and encodings are declared in
# [data] of the release file: decimal = ",", date_format = "%d.%m.%Y", encoding = "cp1252".
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema to complete: its TOML text, and what to know about it."""

    text: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One column of the draft: remarks, the lines of its table (none if it cannot be one)."""

    remarks: tuple[str, ...]
    lines: tuple[str, ...]
    warning: str


def draft(
    column_types: Mapping[str, str],
    *,
    categories: Mapping[str, Sequence[str | int]] | None = None,
    untyped: Collection[str] = (),
) -> Draft:
    """A schema file to complete, from column names and ibis type names such as ``int64``.

    ``categories`` gives lists of values that are known without looking at the data, such as the
    members of a declared enumeration; ``untyped`` names columns without a type (of a CSV file).

    >>> draft({"employed": "!boolean"}).text.splitlines()[-2:]
    ['[domain.employed]', 'kind = "boolean"']
    """
    listed = dict(categories or {})
    for name in listed:
        if name not in column_types:
            raise SchemaError(
                f"categories are given for {shown(name)}, which is not a column"
                f"{did_you_mean(name, column_types)}"
            )
    if not column_types:
        raise SchemaError("the table has no columns, so there is nothing to declare")
    text, warnings = [_HEADER, *([_UNTYPED_HEADER] if untyped else [])], list[str]()
    for name, type_name in column_types.items():
        is_guess = name in untyped and name not in listed and is_text(name)
        part = _guess(name) if is_guess else _part(name, type_name, listed.get(name))
        remarks = [f"# {remark}" for remark in part.remarks]
        header = [f"[domain.{toml_key(name)}]"] if part.lines else []
        text.append("\n".join([*remarks, *header, *part.lines, ""]))
        if part.warning:
            warnings.append(f"{name}: {part.warning}")
    return Draft("\n".join(text), tuple(warnings))


_RELEASE = """\
# What is released of {name}. Complete {domain} first; then
#
#   sfumato plan {release}        the error of every answer, before anything is spent
#   sfumato release {release}     the answers, debited in the ledger
#
# All keys: docs/spec.md.

[data]
source = {source}
domain = {domain_text}
{texts}# unit = "person_id"       # if a person has several rows: the column that says whose
# rows_per_unit = 5        # and how many rows of one person count

[[workload]]
marginals = 1              # a table for each attribute; 2 for all pairs

[budget]
epsilon = 1                # the bound on what one person's record may change
delta = 1e-9

[ledger]
path = {ledger}
create = true              # by the first release
epsilon = 1                # what all releases of this table may spend together
delta = 1e-9
"""

_TEXT_KEYS = """\
# csv = "rfc4180"          # texts with line ends stand in quotes; "lines" if there are none
# encoding = "cp1252"      # and delimiter, quote, header: how the file was written
# decimal = ","            # and thousands, date_format, null_values: how values were
"""


_NEXT = """\
# What is released of {name} next, on what its description published. Choose the workload; then
#
#   sfumato plan {release}        the error of every answer, before anything is spent
#   sfumato release {release}     the answers, debited in the ledger
#
# All keys: docs/spec.md.

[data]
source = {source}
domain = {domain}
name = {table}
neighbours = {neighbours}
{data}
[[workload]]
marginals = {ways}              # {ways_text}

[budget]
{budget}
{ledger}"""


def next_release_file(
    name: str,
    source: str,
    domain: str,
    release: str,
    *,
    neighbours: str,
    columns: int,
    data: str,
    budget: Mapping[str, str],
    left: bool,
    ledger: str | None,
) -> str:
    """A release file for a completed schema: a table for every pair of columns.

    Args:
        name: What the table is called in public.
        source: The source, as the file is to name it.
        domain: The name of the schema file.
        release: The name of this file.
        neighbours: Which two tables must be hard to tell apart.
        columns: How many columns the schema has.
        data: Further lines of the table ``[data]``.
        budget: What the release may spend, by the keys of ``[budget]``.
        left: Whether that is what is left in the ledger; if not, nothing is.
        ledger: The path of the ledger, as the file is to name it; None if there is none.

    Returns:
        The text of the file.
    """
    ways = min(2, columns)
    pairs = "a table for every pair of columns; 1 for each by itself"
    why = "# what is left in the ledger" if left else "# the ledger has too little left: raise it"
    lines = [f"{key} = {value}" for key, value in budget.items()]
    if ledger is not None:
        lines[0] = f"{lines[0]}    {why}"
    section = "" if ledger is None else f"\n[ledger]\npath = {toml_text(ledger)}\n"
    return _NEXT.format(
        name=name,
        source=toml_text(source),
        domain=toml_text(domain),
        table=toml_text(name),
        neighbours=toml_text(neighbours),
        release=release,
        data=data,
        ways=ways,
        ways_text=pairs if ways == 2 else "a table of the column",
        budget="\n".join(lines),
        ledger=section,
    )


def release_file(name: str, source: str, domain: str, release: str, *, is_csv: bool = False) -> str:
    """A release file for a drafted schema: a table for each attribute, at epsilon 1.

    Args:
        name: What the table is called in public.
        source: The source, as the file is to name it.
        domain: The name of the schema file.
        release: The name of this file.
        is_csv: Whether the source is CSV, of which more can be declared.

    Returns:
        The text of the file.
    """
    return _RELEASE.format(
        name=name,
        source=toml_text(source),
        domain=domain,
        domain_text=toml_text(domain),
        release=release,
        texts=_TEXT_KEYS if is_csv else "",
        ledger=toml_text(re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") + ".ledger"),
    )


def _part(name: str, type_name: str, values: Sequence[str | int] | None) -> _Part:
    if not is_text(name):
        raise SchemaError(f"a column needs a name to be declared, got {shown(name)}")
    word = re.match(r"!?([a-z]+)", type_name.strip().lower())
    family = word[1] if word else ""
    is_nullable = not type_name.strip().startswith("!")
    # A whole decimal, such as decimal(10,0), counts like an integer.
    is_whole = family in ("int", "uint") or bool(re.search(r"decimal\(\d+, *0\)", type_name))
    if values is not None:
        part = _listed(name, values)
    elif is_whole:
        part = _INTEGER
    else:
        part = _BY_FAMILY.get(family) or _left_out(name, type_name)
    if part.lines and is_nullable:
        return replace(part, lines=(*part.lines, 'nulls = "missing"'))
    return part


def _guess(name: str) -> _Part:
    """A column of which nothing but its name is public."""
    guess = guessed(name)
    part = _BY_KIND[guess.kind]
    lines = part.lines
    if guess.public_list is not None:
        lines = ('kind = "category"', f'list = "{guess.public_list}"', 'outside = "other"')
        part = replace(part, warning="")
    elif guess.bounds is not None:
        low, high = guess.bounds
        keys = [f"min = {low}", f"max = {high}"]
        lines = (f'kind = "{guess.kind}"', *keys, *_BINS.get(guess.kind, ()), 'outside = "clamp"')
        part = replace(part, warning="")
    remark = "A guess from the name alone: check the kind" + (
        ", the range and the list." if lines != part.lines else "."
    )
    remarks = (remark, *part.remarks)
    if guess.is_identifier:
        remarks = ("The name is that of an identifier or free text: delete this table if it is.",)
    warning = part.warning and f"{part.warning}; the kind is a guess from the name"
    return _Part(remarks, (*lines, 'nulls = "missing"'), warning)


_BINS = {"numeric": ("bins = 18",)}


def _fill(what: str) -> str:
    return toml_text(FILL_IN + what)


def _listed(name: str, values: Sequence[str | int]) -> _Part:
    checked = Category(name, tuple(values)).values
    return _Part(
        remarks=("These values were given with the column; keep them only if they are public.",),
        lines=('kind = "category"', f"values = {toml_list(checked)}", 'outside = "other"'),
        warning="the list of values was given with the column; it is public only if it was fixed "
        "before the data was collected",
    )


def _left_out(name: str, type_name: str) -> _Part:
    if type_name.strip().lower().lstrip("!").startswith("struct"):
        return _Part(
            remarks=(
                f"The fields of the column {toml_text(name)} are columns of their own below.",
            ),
            lines=(),
            warning="",
        )
    return _Part(
        remarks=(
            f"The column {toml_text(name)} of type {toml_text(type_name)} is left out: such values "
            "cannot be listed or binned.",
        ),
        lines=(),
        warning=f"left out, because values of type {shown(type_name)} cannot be listed or binned",
    )


_INTEGER = _Part(
    remarks=(
        "Add width = N for bins of N numbers. If the numbers are codes, use instead",
        'kind = "category" and values = [...].',
    ),
    lines=(
        'kind = "integer"',
        f"min = {_fill('the least whole number that can occur')}",
        f"max = {_fill('the greatest whole number that can occur')}",
        'outside = "clamp"',
    ),
    warning="min and max must come from public knowledge (form, code book, legal limit), not from "
    "the data",
)

_NUMERIC = _Part(
    remarks=(
        "Instead of edges, min, max and bins = N give N equal bins; min and max alone are enough",
        "for sums and means, which take the values themselves. For whole numbers, which some",
        'programs write as fractions where values are missing, use kind = "integer", min and max.',
    ),
    lines=(
        'kind = "numeric"',
        f"edges = {_fill('the edges of the bins, such as [0, 1000, 5000, 20000]')}",
        'outside = "clamp"',
    ),
    warning="the edges of the bins must come from public knowledge, not from quantiles or the "
    "range of the data",
)

_DATETIME = _Part(
    remarks=(
        "Steps: minute, hour, day, week, month, quarter, year, with a count if wanted: "
        '"15 minute".',
    ),
    lines=(
        'kind = "datetime"',
        f"start = {_fill('the first date that counts, such as 2024-01-01 (no quotes)')}",
        f"end = {_fill('the date after the last one, such as 2025-01-01 (no quotes)')}",
        'step = "month"',
        'outside = "clamp"',
    ),
    warning="start and end must come from public knowledge (the period of the collection), not "
    "from the data",
)

_TEXT = _Part(
    remarks=("Delete this table if the column holds names, identifiers or free text.",),
    lines=(
        'kind = "category"',
        "values = " + _fill("the list of values of the form or code book, such as ['yes', 'no']"),
        'outside = "other"',
    ),
    warning="the list of values must come from public knowledge (form, code book), not from the "
    "data; rare values that only the data knows are the most private ones",
)

_BOOLEAN = _Part(remarks=(), lines=('kind = "boolean"',), warning="")

_DURATION = replace(
    _NUMERIC,
    remarks=(
        "Durations, counted in the unit that duration names: second, minute, hour, day, week.",
    ),
    lines=(*_NUMERIC.lines, 'duration = "hour"'),
)

_BY_FAMILY = {
    "interval": _DURATION,
    "float": _NUMERIC,
    "decimal": _NUMERIC,
    "string": _TEXT,
    "boolean": _BOOLEAN,
    "date": _DATETIME,
    "timestamp": _DATETIME,
}

_BY_KIND = {
    "integer": _INTEGER,
    "numeric": _NUMERIC,
    "datetime": _DATETIME,
    "boolean": _BOOLEAN,
    "category": _TEXT,
}
