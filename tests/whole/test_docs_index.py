# SPDX-License-Identifier: Apache-2.0
"""Documents name only what exists, and every mechanism has its page and its proof."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
import yaml

from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import BIASED
from sfumato.planning.stream_plans import STRATEGIES
from sfumato.privacy.selection import ChoiceNoise
from sfumato.run.adaptive import Method

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "proofs" / "README.md"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
]
PROOFS = [p for p in sorted((DOCS / "proofs").glob("*.md")) if p != INDEX]
# A path of the tree, as text names it: with an ending, so that words with a slash do not count.
# What benchmarks write is not part of it.
NAMED = re.compile(
    r"\b((?!bench/results/)(?:src|tests|docs|bench|examples)/[\w./-]*\.(?:py|md|toml|png|ipynb|sh))\b"
)
LINKED = re.compile(r"\]\(([^)#\s]+)")
TEST = re.compile(r"\btests/[\w/]+\.py\b")


def missing_paths(text: str, folder: Path) -> list[str]:
    named = [n for n in NAMED.findall(text) if not (ROOT / n).exists()]
    links = [n for n in LINKED.findall(text) if "://" not in n and not n.startswith("mailto:")]
    return named + [n for n in links if not (folder / n).exists()]


def rows() -> list[list[str]]:
    lines = [x for x in INDEX.read_text().splitlines() if x.startswith("| ") and "---" not in x]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(document):
    assert missing_paths(document.read_text(), document.parent) == []


def test_a_path_that_does_not_exist_is_noticed():
    text = "see `src/sfumato/nowhere.py`, [this](nowhere.md) and [that](README.md)"
    assert missing_paths(text, DOCS / "proofs") == ["src/sfumato/nowhere.py", "nowhere.md"]


@pytest.mark.parametrize("name", [*MECHANISMS, BIASED, *get_args(Method), *STRATEGIES])
def test_every_mechanism_has_a_page_and_a_proof(name):
    of_name = [row for row in rows() if f"`{name}`" in row[0]]
    assert of_name
    for _, page, proofs in of_name:
        assert len(LINKED.findall(page)) == 1
        assert LINKED.findall(proofs)


@pytest.mark.parametrize("noise", get_args(ChoiceNoise))
def test_every_law_of_a_choice_has_a_page_and_a_proof(noise):
    assert any(f"`{noise}`" in row[0] and "choice" in row[0] for row in rows())


@pytest.mark.parametrize("page", PROOFS, ids=lambda p: p.name)
def test_every_proof_is_in_the_index_and_names_tests_that_exist(page):
    assert f"({page.name})" in INDEX.read_text()
    tests = TEST.findall(page.read_text())
    assert tests
    assert [t for t in tests if not (ROOT / t).exists()] == []


def pages_of(nav: object) -> list[str]:
    """The pages of a navigation, in order, with repetitions."""
    if isinstance(nav, str):
        return [nav]
    inside = nav.values() if isinstance(nav, dict) else nav
    return [page for part in inside for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once_and_records_are_not_in_it():
    """Records are reached by links; whatever is neither in it nor listed there fails the build."""
    text = (ROOT / "mkdocs.yml").read_text()
    head, _, nav = text.partition("\nnav:\n")
    pages = pages_of(yaml.safe_load(nav))
    assert len(pages) == len(set(pages))
    records = {
        line.strip(" /") for line in head.split("not_in_nav: |\n")[1].split("\n\n")[0].split()
    }
    assert {"mutants.md", "benchmarks.md"} <= records
    every = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}
    assert every == set(pages) | records
    assert not set(pages) & records
    assert "omitted_files: warn" in head


def test_a_page_that_is_twice_in_a_navigation_is_noticed():
    assert pages_of([{"A": "a.md"}, {"B": ["b.md", {"A again": "a.md"}]}]) == [
        "a.md",
        "b.md",
        "a.md",
    ]


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/api.md", "CONTRIBUTING.md"])
def test_the_readme_leads_to_what_a_developer_needs(page):
    assert f"({page})" in (ROOT / "README.md").read_text()


# One form for every page: a reader finds the same part at the same name.
PARTS = ("Claim", "Pseudocode", "Proof", "Error", "When the planner picks it", "Tests")
PAGES = [p for p in sorted((DOCS / "mechanisms").glob("*.md")) if p.name != "README.md"]


def parts_of(text: str) -> dict[str, str]:
    """The sections of a page, by heading, without what stands in fences."""
    found = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        title.strip(): body.strip() for title, body in zip(found[1::2], found[2::2], strict=True)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_mechanism_page_has_all_parts(page):
    found = parts_of(page.read_text())
    assert [part for part in PARTS if part not in found] == []
    assert [part for part in PARTS if len(found[part]) < 40] == []
    assert "```" in found["Pseudocode"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_mechanism_page_shows_a_figure_and_is_in_the_overview(page):
    assert re.search(r"!\[[^\]]+\]\(\.\./images/[\w-]+\.png\)", page.read_text())
    assert f"({page.name})" in (DOCS / "mechanisms" / "README.md").read_text()


def test_a_page_without_a_part_is_noticed():
    assert parts_of("# x\n\n## Claim\n\na\n\n## Error\n\nb") == {"Claim": "a", "Error": "b"}


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert (
        cited["version"]
        == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    )
