# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document as a page to read: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

__all__ = ["API_POLICY", "TAGS", "api_page", "tag_of"]

API_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
)
TAGS: Final = {
    "data": "what is there, and what may still be spent",
    "plans": "forecasts: they touch no data and cost nothing",
    "answers": "what is debited, measured and answered; repeats are free",
    "jobs": "what goes on when nobody waits",
    "ledger": "what was spent, and the brake",
    "people": "who may use the server, and what they may spend",
    "operation": "whether the server is there, and its figures",
}
_PLANS: Final = ("/plan", "/estimate")
_ANSWERS: Final = ("/release", "/ask", "/select", "/describe", "/discover")
_LEDGER: Final = ("/ledger", "/freeze", "/unfreeze", "/audit")
_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; } h3 { margin: 2rem 0 .3rem; }
code, pre { font: .88em/1.45 ui-monospace, monospace; }
pre { padding: .7rem 1rem; border: 1px solid; border-radius: .5rem; white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0; }
td:first-child { white-space: nowrap; } td > pre { min-width: 14rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; }
"""


def tag_of(path: str) -> str:
    """The part of the document in which a route stands."""
    is_about_people = path.startswith(("/people", "/changes")) or "/allowances/" in path
    if is_about_people or path.endswith("/total"):
        return "people"
    if path.startswith("/jobs"):
        return "jobs"
    if path in ("/health", "/ready", "/metrics"):
        return "operation"
    if path.endswith(_PLANS):
        return "plans"
    if path.endswith(_LEDGER):
        return "ledger"
    return "answers" if path.endswith(_ANSWERS) or "/answers/" in path else "data"


def api_page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document: every route by its tag, with what it takes and returns."""
    sections = dict.fromkeys(TAGS, "")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            part = _operation(method.upper(), path, operation)
            sections[operation["tags"][0]] = sections.get(operation["tags"][0], "") + part
    schemas = document["components"]["schemas"]
    body = "".join(
        f'<h2 id="{escape(tag)}">{escape(tag.capitalize())}</h2>'
        f"<p>{escape(TAGS.get(tag, ''))}</p>{text}"
        for tag, text in sections.items()
        if text
    )
    links = ", ".join(f'<a href="#{tag}">{tag}</a>' for tag, text in sections.items() if text)
    models = "".join(_schema(name, schema) for name, schema in sorted(schemas.items()))
    info = document["info"]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}: routes</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}: routes</h1>"
        f"<p>{escape(info.get('description', ''))} All routes are under <code>/v1</code>, and "
        'without it. The same for programs: <a href="openapi.json">openapi.json</a>. '
        f'Parts: {links}, <a href="#models">models</a>.</p>{body}'
        f'<h2 id="models">Models</h2>{models}</main></body></html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}"
        f"{', needed' if p.get('required') else ''}</td>"
        f"<td>{escape(str(p.get('description', '')))}</td></tr>"
        for p in operation.get("parameters", ())
    )
    takes = operation.get("requestBody", {}).get("content", {})
    body = "".join(f"<p>Takes {_type(c.get('schema', {}))}.</p>" for c in takes.values())
    replies = "".join(
        f"<tr><td>{escape(status)}</td><td>{_contents(reply)}</td>"
        f"<td>{escape(reply.get('description', ''))}</td></tr>"
        for status, reply in operation["responses"].items()
    )
    table = "<table><thead><tr><th>parameter</th><th>where</th><th>about</th></tr></thead>"
    parameters = f"{table}<tbody>{rows}</tbody></table>" if rows else ""
    about = escape(operation.get("description") or operation.get("summary", ""))
    return (
        f"<h3><code>{method} {escape(path)}</code></h3><p>{about}</p>{parameters}{body}"
        "<table><thead><tr><th>status</th><th>body</th><th>about</th></tr></thead>"
        f"<tbody>{replies}</tbody></table>"
    )


def _contents(reply: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{escape(kind)} {_type(content.get('schema', {}))}".strip()
        for kind, content in reply.get("content", {}).items()
    )


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, with a link to its model."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[key]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(v))}</code>" for v in values)
    kind = escape(str(schema.get("type", "any")))
    return f"{kind} of {_type(schema['items'])}" if schema.get("items") else kind


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{', needed' if field in needed else ''}</td>"
        f"<td>{_type(about)}</td><td>{escape(str(about.get('description', '')))}"
        f"{_example(about)}</td></tr>"
        for field, about in schema.get("properties", {}).items()
    )
    about = escape(str(schema.get("description", "")))
    fields = f"<table><tbody>{rows}</tbody></table>" if rows else f"<p>{_type(schema)}</p>"
    return f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3><p>{about}</p>{fields}'


def _example(about: Mapping[str, Any]) -> str:
    examples = about.get("examples")
    return f"<pre>{escape(json.dumps(examples[0], indent=2))}</pre>" if examples else ""
