# SPDX-License-Identifier: Apache-2.0
"""What a column probably holds, from its name alone: `guessed` returns a kind to start from.

For files without types: ``age`` counts years, ``created_at`` is a time, ``is_member`` is yes or no.
Words are looked up in the order below, and what no rule knows is a category. Some names say what
everybody knows: an hour is 0 to 23, a latitude -90 to 90, a country is one of a public list.

Privacy: a function of the name, which is public.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "Guess",
    "guessed",
]

Kind = Literal["category", "boolean", "integer", "numeric", "datetime"]


@dataclass(frozen=True, slots=True)
class Guess:
    """A kind, and what goes without saying for such a name."""

    kind: Kind
    bounds: tuple[int, int] | None = None
    public_list: str | None = None
    is_identifier: bool = False


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
_CATEGORIES: Final = _set(
    "code type class category group status zip zipcode postcode postal sex gender race ethnicity "
    "color colour kind brand make model city county region district neighbourhood neighborhood "
    "state method mode channel segment department occupation job education marital cut clarity "
    "quality condition reason result outcome grade gender species country currency language"
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
        return Guess("category")
    for whole in (" ".join(words), "".join(words)):
        if whole in _WELL_KNOWN:
            return _WELL_KNOWN[whole]
    first, last = words[0], words[-1]
    if last in _IDENTIFIERS:
        return Guess("category", is_identifier=True)
    if len(words) > 1 and first in _TRUTH_STARTS:
        return Guess("boolean")
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
    return Guess("category")


def _words(name: str) -> tuple[str, ...]:
    """The words of a name without capitals and numbers: ``tpepPickup_datetime2`` has three."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", spaced)
    return tuple(re.findall(r"[a-z]+", spaced.lower()))
