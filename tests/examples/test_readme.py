# SPDX-License-Identifier: Apache-2.0
"""Everything that the README and the documents show is run or read here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfumato.cli.spec import read_spec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_example_of_the_readme_has_12_lines_at_most() -> None:
    """``tests/whole/test_wheel.py`` runs it, outside of the repository."""
    assert len(_blocks(README, "python")[0].strip().splitlines()) <= 12


def test_the_example_of_the_notes_runs() -> None:
    _, code = _blocks(README, "python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    for word in ("AboveThreshold", "binary tree", "contingency table", "projection mechanism"):
        assert word in README
    for word in ("Hedge", "exponential mechanism"):
        assert word in README
        assert word in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("document", ["README.md", "docs/spec.md"])
def test_the_specs_of_the_documents_can_be_planned(document: str, tmp_path: Path) -> None:
    schema = (ROOT / "examples" / "adult" / "adult.toml").read_text()
    (tmp_path / "schema.toml").write_text(schema)
    specs = _blocks((ROOT / document).read_text(), "toml")
    assert specs
    for text in specs:
        (tmp_path / "release.toml").write_text(text)
        spec = read_spec(tmp_path / "release.toml")
        assert spec.ledger is not None
        assert len(spec.workload.terms) >= 91


def test_the_commands_of_the_readme_are_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line is checked with --help added: unknown commands would fail, nothing is run."""
    from sfumato.cli.main import main

    lines = re.findall(r"^\$ sfumato (.*?)\s*(?:#.*)?$", README, re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        with pytest.raises(SystemExit) as left:
            main([*line.split(), "--help"])
        assert left.value.code == 0
        used = set(re.findall(r"--[a-z-]+", line))
        assert used <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [
        link
        for link in links
        if not link.startswith("http") and not (document.parent / link).exists()
    ]
    assert missing == []


def test_the_page_about_the_spec_names_every_mechanism() -> None:
    from sfumato.planning.mechanisms import MECHANISMS

    page = (ROOT / "docs" / "spec.md").read_text()
    assert [name for name in MECHANISMS if f"`{name}`" not in page] == []
