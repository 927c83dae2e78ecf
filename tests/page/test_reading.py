# SPDX-License-Identifier: Apache-2.0
"""What there is to read on: every idea leads to pages that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sfumato_web.page import learn_page as pages
from sfumato_web.page.learn_page import IDEAS, text_of, title_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(f.stem for f in (ROOT / "docs" / "mechanisms").glob("[a-z]*.md"))


@pytest.mark.parametrize("idea", IDEAS, ids=lambda i: i.name)
def test_every_idea_has_pages_to_read(idea):
    assert idea.reading
    assert all(title_of(name) for name in idea.reading)
    assert 2 <= sum(p.count(". ") + 1 for p in idea.text) <= 7  # sentences


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_pages_of_the_page_only(name):
    targets = re.findall(r"\]\(([^)]+)\)", text_of(name))
    assert all(t.removeprefix("/page/learn/read/") in PAGES for t in targets)
    assert not text_of(name).startswith("# ")


def test_a_page_that_is_not_there_has_no_title():
    assert title_of("nothing") is None


def test_the_wheel_has_the_pages_where_they_are_looked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert pages.FOLDERS[0] == ROOT / "docs" / "mechanisms"
    assert pages.FOLDERS[1].as_posix().endswith(shared["docs/mechanisms"])
