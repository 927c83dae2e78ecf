# SPDX-License-Identifier: Apache-2.0
"""Answers as Arrow and Parquet, packed, with tags; routes below /v1; the routes as a page."""

from __future__ import annotations

import gzip
import json
from html.parser import HTMLParser
from io import BytesIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato_web.server.formats import ARROW, PARQUET, accepted_format, table_of
from sfumato_web.server.problems import Problem
from tests.http.served import ADA, BOB, CORA, asked, bearer, served, write_served
from tests.http.test_ask import SESSION

SQL = {"sql": "SELECT sex, COUNT(*) FROM data GROUP BY sex"}


def _read(kind: str, content: bytes) -> pa.Table:
    if kind == ARROW:
        return pa.ipc.open_stream(content).read_all()
    return pq.read_table(BytesIO(content))


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_a_release_is_a_table_with_the_rest_in_its_metadata(fresh, kind):
    plain = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
    for method, path in (("POST", "release"), ("GET", f"answers/{plain['key']}")):
        body = {"json": asked(0.5)} if method == "POST" else {}
        headers = {**bearer(ADA), "Accept": f"{kind}, application/json;q=0.5"}
        reply = fresh.request(method, f"/datasets/people/{path}", headers=headers, **body)
        assert (reply.status_code, reply.headers["content-type"]) == (200, kind)
        table = _read(kind, reply.content)
        found = {name: table[name].to_pylist() for name in table.column_names}
        assert list(found) == list(plain["answers"])
        assert found["value"] == plain["answers"]["value"]
        rest = json.loads(table.schema.metadata[b"sfumato"])
        assert rest == {name: value for name, value in plain.items() if name != "answers"}
        assert len(pd.DataFrame(plain["answers"])) == table.num_rows


def test_answers_to_a_question_are_rows_with_their_groups(tmp_path):
    with served(write_served(tmp_path, SESSION)) as client:
        plain = client.post("/datasets/people/ask", json=SQL, headers=bearer(ADA)).json()
        headers = {**bearer(ADA), "Accept": ARROW}
        reply = client.post("/datasets/people/ask", json=SQL, headers=headers)
    table = _read(ARROW, reply.content)
    assert table["sex"].to_pylist() == [a["groups"]["sex"] for a in plain["answers"]]
    assert table["value"].to_pylist() == [a["value"] for a in plain["answers"]]


def test_what_cannot_be_had_is_refused_before_anything_is_spent(fresh):
    people = fresh.app.server.datasets["people"]
    before = people.ledger.version()
    for path, body in (("release", asked(0.5)), ("ask", SQL), ("select", {}), ("describe", {})):
        for accept in ("text/csv", "application/json;q=0", "nonsense", ";;;,,,=", "*/*;q=x"):
            headers = {**bearer(ADA), "Accept": accept}
            reply = fresh.post(f"/datasets/people/{path}", json=body, headers=headers)
            assert reply.status_code in (406, 422)
            if path in ("release", "ask"):
                assert (reply.status_code, reply.json()["error"]) == (406, "not-acceptable")
    assert people.ledger.version() == before


def test_bodies_are_packed_where_that_is_accepted_and_tags_are_of_the_unpacked(fresh):
    plain = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
    path = f"/datasets/people/answers/{plain.json()['key']}"
    tags = set()
    for accepted, how in (("identity", None), ("gzip", "gzip"), ("zstd;q=1, gzip;q=0.5", "zstd")):
        headers = {**bearer(ADA), "Accept-Encoding": accepted}
        with fresh.stream("GET", path, headers=headers) as reply:
            raw = b"".join(reply.iter_raw())
        assert reply.headers.get("content-encoding") == how
        assert "accept-encoding" in reply.headers["vary"]
        body = {
            None: lambda raw: raw,
            "gzip": gzip.decompress,
            "zstd": lambda raw: pa.CompressedInputStream(pa.py_buffer(raw), "zstd").read(),
        }[how](raw)
        assert body == plain.content
        assert how is None or len(raw) < len(body)
        tags.add(reply.headers["etag"])
    (tag,) = tags
    for sent in (tag, f'"x", W/{tag}', "*"):
        again = fresh.get(path, headers={**bearer(ADA), "If-None-Match": sent})
        assert (again.status_code, again.content) == (304, b"")
    other = fresh.get(path, headers={**bearer(ADA), "If-None-Match": '"x"', "Accept": PARQUET})
    assert other.status_code == 200
    assert other.headers["etag"] != tag
    stranger = fresh.get(path, headers={**bearer(BOB), "If-None-Match": tag})
    assert stranger.status_code in (200, 304, 404)
    nobody = fresh.get(path, headers={"If-None-Match": tag})
    assert nobody.status_code == 401


def test_routes_are_below_v1_as_without_it(fresh):
    for path in ("/health", "/datasets", "/datasets/people/schema", "/openapi.json", "/jobs"):
        old, new = (fresh.get(f"{p}{path}", headers=bearer(CORA)) for p in ("", "/v1"))
        assert (old.status_code, old.content) == (new.status_code, new.content)
    body = fresh.post("/v1/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
    again = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
    assert body.content == again.content
    for path in ("/v1/datasets", "/v1/metrics", "/v1/datasets/people/ledger"):
        assert fresh.get(path).status_code == 401
    assert fresh.get("/v1/page", headers=bearer(ADA)).status_code == 404
    assert fresh.get("/v1/v1/datasets", headers=bearer(ADA)).status_code == 404
    assert fresh.get("/v1datasets", headers=bearer(ADA)).status_code == 404


class _Read(HTMLParser):
    """What a page would load, where its links lead, and what they can lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.add(value)


def test_the_routes_are_a_page_that_loads_nothing(fresh):
    reply = fresh.get("/api")
    assert reply.headers["content-type"].startswith("text/html")
    policies = reply.headers.get_list("content-security-policy")
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")
    read = _Read()
    read.feed(reply.text)
    assert read.tags.isdisjoint({"script", "img", "link", "iframe"})
    assert {link.removeprefix("#") for link in read.links} - read.ids == {"openapi.json"}
    document = fresh.get("/openapi.json").json()
    assert all(
        f"<code>GET {p}</code>" in reply.text for p, m in document["paths"].items() if "get" in m
    )
    assert "Running totals" in reply.text or "prefix" in reply.text


def test_the_document_has_tags_and_a_typed_workload(fresh):
    document = fresh.get("/openapi.json").json()
    named = {tag["name"] for tag in document["tags"]}
    used = {t for m in document["paths"].values() for op in m.values() for t in op["tags"]}
    assert used == named
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    assert "#/$defs/" not in text
    refs = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert refs <= set(schemas)
    workload = schemas["ReleaseAsked"]["properties"]["workload"]
    assert {"$ref": "#/components/schemas/WorkloadPrefix"} in workload["items"]["anyOf"]
    assert workload["examples"]


def test_odd_answers_become_tables():
    body = {
        "key": "k",
        "answers": {"a": [1, "(other)", None], "v": [1, 2.5, None], "n": [None] * 3},
    }
    table = table_of(json.dumps(body).encode())
    assert table.to_pydict() == {"a": ["1", "(other)", None], "v": [1, 2.5, None], "n": [None] * 3}
    rows = [
        {"groups": {"value": "x"}, "value": 1, "cost": [{"mu": "1"}]},
        {"groups": {}, "value": 2},
    ]
    table = table_of(json.dumps({"answers": rows}).encode())
    assert table.column_names == ["value (group)", "value", "cost"]
    assert table_of(b'{"answers": []}').num_rows == 0


@pytest.mark.parametrize("header", ["", " ", "*/*", "application/*", "text/html, */*;q=0.1"])
def test_whoever_accepts_everything_gets_json(header):
    assert accepted_format(header) == "application/json"


def test_other_formats_are_named_in_the_refusal():
    with pytest.raises(Problem, match="name one of them in Accept"):
        accepted_format("image/png")
