# SPDX-License-Identifier: Apache-2.0
"""What a release is made of as data in a file: ``release.zip``.

It is a zip of

* ``release.json``: format and version, SHA-256 of the other files of the folder, and objects, each
  with the name of its class, its fields by name, and places of arrays;
* one array for each type of numbers (``numpy``'s own format, never pickled);
* ``provenance.json``, as beside it.

Only dataclasses of some rooms are made from it, by their own constructors; nothing in a file is
run. A class that has moved is found by its name, one that has other fields is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from math import isfinite
from pathlib import Path
from pkgutil import walk_packages
from types import MappingProxyType
from typing import IO, Any, Final, Literal
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError
from sfumato.measurement import Measured
from sfumato.planning.division import divided, length_told
from sfumato.planning.forecast import Candidates, Forecast
from sfumato.release.release_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array
from sfumato.version import VERSION
from sfumato.workload.statements.sql import sql
from sfumato.workload.statements.statement import Statement
from sfumato.workload.terms import StructuredLabel

__all__ = [
    "FORMAT",
    "OBJECTS",
    "RECORD",
    "ObjectReader",
    "Unwritable",
    "file_digest",
    "forecast_bytes",
    "stored_forecast",
    "write_objects",
]

FORMAT: Final = "sfumato release 1"
OBJECTS: Final = "release.json"
RECORD: Final = "provenance.json"
_PARAMETERS: Final = "__dataclass_params__"
_ROOMS: Final = (
    *("domain", "workload", "privacy", "measurement", "solve", "strategy", "planning", "refine"),
    "release",
)
"""Rooms whose dataclasses a file may hold: none of them opens a table, a ledger or a network."""


class Unwritable(TypeError):
    """A release holds something that has no form in a file."""


def write_objects(
    content: Mapping[str, object],
    record: str,
    path: Path,
    files: Mapping[str, Path],
    about: tuple[Domain, PrivacyUnit | None],
) -> None:
    """Write what a release is made of, and its ``record`` of provenance.

    ``files`` lie beside it, and their hashes are in it. SQL in it is ``about`` a domain and a unit.

    Raises:
        Unwritable: if it holds what has no form here.
    """
    writer = _ObjectWriter(*about)
    body = writer.form(dict(content))
    head = {"files": {name: file_digest(place) for name, place in sorted(files.items())}}
    _write_zip(path, writer, body, head, {RECORD: record.encode()})


def _write_zip(
    place: Path | IO[bytes],
    writer: _ObjectWriter,
    body: object,
    head: Mapping[str, object],
    members: Mapping[str, bytes],
) -> None:
    """Write objects and arrays, with further members and facts about them."""
    whole = {
        "format": FORMAT,
        "sfumato": VERSION,
        **head,
        "classes": writer.classes,
        "objects": writer.objects,
        "release": body,
    }
    with ZipFile(place, "w", ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in members.items():
            _write_member(file, name, data)
        for name, parts in writer.arrays.items():
            out = io.BytesIO()
            np.save(out, np.concatenate(parts), allow_pickle=False)
            _write_member(file, f"{name}.npy", out.getvalue())
        _write_member(file, OBJECTS, json.dumps(whole, separators=(",", ":")).encode())


def forecast_bytes(forecast: Forecast) -> bytes | None:
    """What reads a measurement without its plan: the forecast of its normal form, nobody's words.

    Args:
        forecast: That of the plan.

    Returns:
        A zip as above; None where the forecast has no form in a file, or a long one.
    """
    plain = replace(forecast.in_normal_form, candidates=())
    writer, out = _ObjectWriter(plain.workload.domain, plain.unit), io.BytesIO()
    try:
        body = writer.form({"forecast": plain})
    except Unwritable:
        return None
    held = sum(part.nbytes for parts in writer.arrays.values() for part in parts)
    if held > LIMITS.stored_forecast_bytes:
        return None
    _write_zip(out, writer, body, {}, {})
    written = out.getvalue()
    return written if len(written) <= LIMITS.stored_forecast_bytes else None


def stored_forecast(stored: bytes) -> Forecast | None:
    """The forecast that stands beside a stored measurement and reads it.

    Args:
        stored: The answer of a release, as a ledger has it.

    Returns:
        The forecast, divided as the measurement was; None where none stands there, as beside those
        of earlier versions, or where this version cannot read it.
    """
    made, data = Measured.about(stored), Measured.forecast(stored)
    if made is None or data is None:
        return None
    try:
        with ZipFile(io.BytesIO(data)) as file:
            forecast = ObjectReader(json.loads(file.read(OBJECTS)), file).release()["forecast"]
    except Exception:  # objects of another version fail in as many ways as there are classes
        return None
    if not isinstance(forecast, Forecast):
        return None
    division = made.get("division")
    if isinstance(division, dict):
        records, is_counted = int(division["records"]), bool(division["is_counted"])
        length = length_told(division)
        forecast = divided(forecast, records, is_counted=is_counted, length=length)
    is_its = made.get("noise") == [law.as_json() for law in forecast.noise]
    return forecast if is_its else None


def _write_member(file: ZipFile, name: str, data: bytes) -> None:
    """A member without the time of day."""
    info = ZipInfo(name)
    info.compress_type = ZIP_DEFLATED
    file.writestr(info, data, compresslevel=1)


# Objects as JSON: a list is a tuple, a table of one entry says of what kind its content is


class _ObjectWriter:
    """Objects as JSON and arrays, each object once; SQL is about a domain and a privacy unit."""

    def __init__(self, domain: Domain, unit: PrivacyUnit | None) -> None:
        self._sql = (domain, unit)
        self.objects: list[object] = []
        self.classes: dict[str, list[str]] = {}
        self.arrays: dict[str, list[Array]] = {}
        self._lengths: dict[str, int] = {}
        self._places: dict[int, int] = {}
        self._alive: list[object] = []  # an id is one object's as long as that lives

    def form(self, value: object) -> object:
        """The JSON of a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if isfinite(value) else {"float": str(value)}
        if type(value) is tuple:
            return [self.form(v) for v in value]
        if isinstance(value, Candidates):
            return self.form(value.all())
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, StructuredLabel):
            parts = (value.aggregate, value.condition, value.groups, value.binned)
            return {"label": self.form((str(value), *parts))}
        if isinstance(value, Domain):
            return self._object(value, "domain.domain:Domain", {"attributes": value.attributes})
        if isinstance(value, Statement) and (value.having or value.order):
            # What HAVING and ORDER BY do are functions: they are read from the text again.
            _with_clauses(value, *self._sql)
            plain = replace(value, having=None, order=())
            return {"statement": self.form((plain, *self._sql))}
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        for kind, write in _FORMS.items():
            if type(value) is kind:
                name, content = write(value)
                return {name: self.form(content)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr"):
            csr = value.tocsr()
            return {"csr": [self.form(v) for v in (csr.data, csr.indices, csr.indptr, csr.shape)]}
        raise Unwritable(f"{type(value).__module__}.{type(value).__qualname__}")

    def _dataclass(self, value: object) -> object:
        room, _, rest = type(value).__module__.removeprefix("sfumato.").partition(".")
        if not type(value).__module__.startswith("sfumato.") or room not in _ROOMS:
            raise Unwritable(f"{type(value).__module__}.{type(value).__qualname__}")
        name = f"{room}.{rest}" if rest else room
        content = {f.name: getattr(value, f.name) for f in _written_fields(type(value))}
        return self._object(value, f"{name}:{type(value).__name__}", content)

    def _object(self, value: object, name: str, content: Mapping[str, object]) -> object:
        if id(value) not in self._places:
            names = self.classes.setdefault(name, list(content))
            written = [self.form(content[n]) for n in names]
            self.objects.append([list(self.classes).index(name), written])
            self._places[id(value)] = len(self.objects) - 1
            self._alive.append(value)
        return {"at": self._places[id(value)]}

    def _array(self, value: Array) -> object:
        if value.dtype.kind == "O":
            return {"texts": [list(value.shape), [self.form(v) for v in value.ravel().tolist()]]}
        if value.dtype.kind not in "biufUMm":
            raise Unwritable(f"an array of {value.dtype}")
        repeats = [s == 0 and n > 1 for s, n in zip(value.strides, value.shape, strict=True)]
        once = value[tuple(slice(1) if r else slice(None) for r in repeats)]
        kind = value.dtype.newbyteorder("<").str
        name = "".join(c if c.isalnum() else "_" for c in kind)
        begin = self._lengths.get(name, 0)
        # Linear algebra rounds by the order in memory, so that is kept.
        order: Literal["F", "C"] = "F" if once.flags.fnc else "C"
        self.arrays.setdefault(name, []).append(once.ravel(order).astype(kind))
        self._lengths[name] = begin + once.size
        return {"array": [name, begin, list(once.shape), list(value.shape), order]}


def _with_clauses(plain: Statement, domain: Domain, unit: PrivacyUnit | None) -> Statement:
    """A statement with the HAVING and ORDER BY of its text."""
    try:
        (read,) = sql(domain, plain.text, unit=unit).statements
    except SfumatoError as error:
        raise Unwritable("a SELECT that cannot be read again") from error
    return replace(plain, having=read.having, order=read.order)


def _written_fields(kind: type) -> tuple[Any, ...]:
    """The fields that a constructor takes; all, where a class has a constructor of its own."""
    return tuple(f for f in fields(kind) if f.init or not _is_made_by_dataclass(kind))


def _is_made_by_dataclass(kind: type) -> bool:
    parameters = getattr(kind, _PARAMETERS)  # also of a subclass that adds no field
    return bool(parameters.init)


_FORMS: Final[dict[type, Callable[[Any], tuple[str, object]]]] = {
    list: lambda v: ("list", tuple(v)),
    dict: lambda v: ("dict", tuple(v.items())),
    MappingProxyType: lambda v: ("dict", tuple(v.items())),
    frozenset: lambda v: ("frozenset", tuple(sorted(v, key=repr))),
    set: lambda v: ("set", tuple(sorted(v, key=repr))),
    Fraction: lambda v: ("fraction", (v.numerator, v.denominator)),
    Decimal: lambda v: ("decimal", str(v)),
    datetime: lambda v: ("datetime", v.isoformat()),
    date: lambda v: ("date", v.isoformat()),
    timedelta: lambda v: ("timedelta", (v.days, v.seconds, v.microseconds)),
    bytes: lambda v: ("bytes", v.hex()),
    range: lambda v: ("range", (v.start, v.stop, v.step)),
}

_READERS: Final[dict[str, Callable[[Any], object]]] = {
    "list": list,
    "dict": dict,
    "frozenset": frozenset,
    "set": set,
    "fraction": lambda v: Fraction(*v),
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "bytes": bytes.fromhex,
    "range": lambda v: range(*v),
    "float": float,
    "label": lambda v: StructuredLabel(*v),
    "statement": lambda v: _with_clauses(*v),
}


class ObjectReader:
    """Objects out of JSON and arrays."""

    def __init__(self, head: Mapping[str, Any], file: ZipFile) -> None:
        self._head, self._file = head, file
        self._classes = [(_class_named(n), names) for n, names in head["classes"].items()]
        self._arrays: dict[str, Array] = {}
        self._objects: list[object] = []

    def release(self) -> dict[str, Any]:
        """What the release is made of."""
        for which, content in self._head["objects"]:
            kind, names = self._classes[which]
            values = dict(zip(names, map(self.value, content), strict=True))
            self._objects.append(_made(kind, values))
        parts = self.value(self._head["release"])
        if not isinstance(parts, dict):
            raise ValueError("no release")
        return parts

    def value(self, form: object) -> object:
        """A value out of its JSON."""
        if isinstance(form, list):
            return tuple(self.value(v) for v in form)
        if not isinstance(form, dict):
            return form
        ((name, content),) = form.items()
        match name:
            case "at":
                return self._objects[content]
            case "array":
                return self._array(*content)
            case "scalar":
                return self._array(*content["array"])[()]
            case "texts":
                shape, texts = content
                out = np.empty(len(texts), dtype=object)
                out[:] = [self.value(v) for v in texts]
                return out.reshape(shape)
            case "csr":
                from scipy.sparse import csr_matrix

                data, indices, starts, shape = (self.value(v) for v in content)
                return csr_matrix((data, indices, starts), shape=shape)
        return _READERS[name](self.value(content))

    def _array(
        self, name: str, begin: int, once: list[int], shape: list[int], order: Literal["F", "C"]
    ) -> Array:
        if name not in self._arrays:
            data = io.BytesIO(self._file.read(f"{name}.npy"))
            self._arrays[name] = np.load(data, allow_pickle=False)
        size = int(np.prod(once, dtype=object))
        part: Array = self._arrays[name][begin : begin + size].reshape(once, order=order)
        return part if once == shape else np.broadcast_to(part, shape)


@cache
def _class_named(name: str) -> type:
    """A class that a file may hold, by module and name; by its name alone where it has moved."""
    module, _, title = name.partition(":")
    room = module.partition(".")[0]
    if room not in _ROOMS:
        raise SfumatoError(f"a release holds no {shown(name)}")
    for place in (module, *_modules()):
        try:
            kind = getattr(import_module(f"sfumato.{place}"), title, None)
        except ImportError:
            continue
        if isinstance(kind, type) and (is_dataclass(kind) or kind is Domain):
            return kind
    raise KeyError(title)


def _modules() -> Iterator[str]:
    """All modules of the rooms, in whatever folder."""
    for room in _ROOMS:
        package = import_module(f"sfumato.{room}")
        for module in walk_packages(getattr(package, "__path__", []), f"{room}."):
            yield module.name


def _made(kind: type, values: dict[str, object]) -> object:
    """An object of a class from its fields; refuses those that the class does not have."""
    if kind is Domain:
        return Domain(values["attributes"])  # type: ignore[arg-type]
    own = {f.name: f for f in _written_fields(kind)}
    needed = {n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING}
    if not needed <= values.keys() <= own.keys():
        raise KeyError(kind.__name__)
    if _is_made_by_dataclass(kind):
        return kind(**values)
    made: object = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
