# SPDX-License-Identifier: Apache-2.0
"""Files outside of docs/ that documents link to, as pages of the site.

On a code host ``[spec](../examples/adult/release.toml)`` shows the file. The site holds documents
only, so the file becomes a page of its own (``source/examples/adult/release.toml``) and the link
leads there. A link to something that is not in the tree stays as it is, and the strict build fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s]+)(\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".ipynb": "json"}
LARGEST = 100_000  # characters; more than that is no reading matter


def outside(link: str, folder: str) -> str | None:
    """The path from the root of the tree, if the link leads out of docs/ to what exists."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    path = normpath(f"docs/{folder}/{link}")
    is_inside = path == "docs" or path.startswith(("docs/", "..")) or path == "."
    return None if is_inside or not (ROOT / path).exists() else path


def page_of(path: str) -> str:
    """Where the page of a file is, in the sources of the site."""
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every outside file that some document links to."""
    wanted: set[str] = set()
    for file in list(files.documentation_pages()):
        folder = str(Path(file.src_uri).parent)
        found = (outside(link, folder) for _, link, _ in LINK.findall(file.content_string))
        wanted |= {path for path in found if path is not None}
    for path in sorted(wanted):
        file = File.generated(
            config,
            page_of(path),
            content=shown(ROOT / path, path),
            inclusion=InclusionLevel.NOT_IN_NAV,  # reached by links alone
        )
        files.append(file)
    return files


def shown(target: Path, path: str) -> str:
    """What stands on the page of a file: Markdown as it is, the rest as code."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if target.is_dir():
        names = sorted(p.name for p in target.iterdir() if not p.name.startswith(("_", ".")))
        return head + "\n".join(f"* `{name}`" for name in names)
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return head + re.sub(r"^# .*\n", "", text, count=1)
    language = LANGUAGES.get(target.suffix, "text")
    return head + f"````{language}\n{text[:LARGEST].rstrip()}\n````\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to outside files lead to their pages."""
    uri = page.file.src_uri
    is_source = uri.startswith("source/")
    # A shown Markdown file links from where it lies in the tree, not from where its page is.
    lies = Path("..", uri.removeprefix("source/")) if is_source else Path(uri)
    folder = str(lies.parent)

    def rewritten(match: re.Match[str]) -> str:
        path = outside(match[2], folder)
        if path is not None:
            to = page_of(path)
        elif is_source and "://" not in match[2]:
            to = normpath(f"{folder}/{match[2]}").removeprefix("../docs/")
        else:
            return match[0]
        return f"{match[1]}{relpath(to, Path(uri).parent)}{match[3]}"

    return LINK.sub(rewritten, markdown)
