# SPDX-License-Identifier: Apache-2.0
"""Answers in other formats than JSON: what a request accepts, and its answers written so.

The stored body of an answer is JSON. By ``Accept`` its answers are sent as a table in an Arrow
stream or a Parquet file, with all that the JSON says besides in the metadata of the schema, under
``sfumato``. By ``Accept-Encoding`` any of them is packed. The ``ETag`` is of the bytes of the body
in its format, before it is packed: equal answers have equal tags, for ever.

Privacy: functions of what was published.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from sfumato_web.server.problems import Problem
from sfumato_web.server.server_limits import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARROW", "JSON", "PARQUET", "accepted_format", "reply", "table_of"]

JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
_FORMATS: Final = (JSON, ARROW, PARQUET)
_WILD: Final = {"*/*": JSON, "application/*": JSON}


def _weighed(header: str) -> list[tuple[str, float]]:
    """The names of a header with their weights, the largest first; in its order where equal."""
    out = []
    for part in header.split(","):
        name, *parameters = part.split(";")
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        if name.strip():
            out.append((name.strip().lower(), weight))
    return sorted(out, key=lambda pair: -pair[1])


def accepted_format(header: str | None) -> str:
    """The format that a request accepts, to be looked at before anything is spent.

    >>> accepted_format(None), accepted_format("text/html, application/vnd.apache.parquet;q=0.9")
    ('application/json', 'application/vnd.apache.parquet')

    Raises:
        Problem: 406, there are other formats only.
    """
    if header is None or not header.strip():
        return JSON
    for name, weight in _weighed(header):
        kind = _WILD.get(name, name)
        if weight > 0 and kind in _FORMATS:
            return kind
    message = f"answers can be had as {', '.join(_FORMATS)}; name one of them in Accept"
    raise Problem(406, "not-acceptable", message)


def table_of(body: bytes) -> pa.Table:
    """The answers of a body as a table, with the rest of it in the metadata of its schema."""
    import pyarrow as pa

    document = json.loads(body)
    answers = document.pop("answers")
    columns = _columns(answers) if isinstance(answers, list) else answers
    arrays = {name: _array(values) for name, values in columns.items()}
    rest = json.dumps(document, separators=(",", ":"))
    return pa.table(arrays).replace_schema_metadata({"sfumato": rest})


def _columns(answers: list[Mapping[str, Any]]) -> dict[str, list[object]]:
    """Answers to a question, one row each; the columns of their groups come first."""
    groups = dict.fromkeys(name for answer in answers for name in answer.get("groups", {}))
    names = dict.fromkeys(name for answer in answers for name in answer if name != "groups")
    columns: dict[str, list[object]] = {}
    for name in groups:
        title = f"{name} (group)" if name in names else name
        columns[title] = [answer.get("groups", {}).get(name) for answer in answers]
    for name in names:
        columns[name] = [_plain(answer.get(name)) for answer in answers]
    return columns


def _plain(value: object) -> object:
    """A value of a column; a cost is a text of JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _array(values: list[Any]) -> pa.Array:
    """Values of one kind as they are, of several as texts: a label can be a number or a text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and kinds != {int, float}:
        values = [None if value is None else str(value) for value in values]
    elif kinds == {int, float}:
        values = [None if value is None else float(value) for value in values]
    return pa.array(values)


def _written(body: bytes, kind: str) -> bytes:
    """A body in a format."""
    if kind == JSON:
        return body
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, out = table_of(body), BytesIO()
    if kind == ARROW:
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    else:
        pq.write_table(table, out)
    return out.getvalue()


def _packing(header: str) -> str | None:
    """How a body may be packed: the first of zstd and gzip that is accepted with most weight."""
    return next((n for n, w in _weighed(header) if w > 0 and n in ("zstd", "gzip")), None)


def _packed(body: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(body, 6, mtime=0)
    import pyarrow as pa

    return bytes(pa.Codec("zstd", 3).compress(body, asbytes=True))


def reply(body: bytes, headers: Mapping[str, str], kind: str, *, is_kept: bool = False) -> Response:
    """The response to a request for a stored body.

    Args:
        body: what is stored, as JSON.
        headers: those of the request.
        kind: the format, as `accepted_format` returned it.
        is_kept: whether the same request has the same body for ever: then a tag that is sent
            back gets 304 and no body.

    Returns:
        The body in its format, packed where that is accepted and worth it.
    """
    content = _written(body, kind)
    out = {"vary": "accept, accept-encoding"}
    if is_kept:
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        out["etag"] = tag
        sent = [
            each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")
        ]
        if tag in sent or "*" in sent:
            return Response(None, 304, out)
    how = _packing(headers.get("accept-encoding", ""))
    if how is not None and len(content) >= LIMITS.packed_bytes:
        content, out["content-encoding"] = _packed(content, how), how
    return Response(content, headers=out, media_type=kind)
