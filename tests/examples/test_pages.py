# SPDX-License-Identifier: Apache-2.0
"""The tutorial and the how-to pages do what they show: every command, example and file is run."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

from sfumato.cli.main import main
from sfumato_web.server.config import read_config

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def masked(line: str) -> str:
    """A line without its numbers, which noise changes, and without its spaces."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "#", line)).strip()


def missing_lines(shown: str, printed: str) -> list[str]:
    """What a page shows and the program did not print, in this order; ``...`` stands for any."""
    rest = [masked(line) for line in printed.splitlines()]
    missing = []
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        if masked(line) in rest:
            rest = rest[rest.index(masked(line)) + 1 :]
        else:
            missing.append(line)
    return missing


def test_lines_that_are_not_printed_are_noticed() -> None:
    printed = "rmse 11.7 counts\n left\n right\n"
    assert missing_lines("rmse 12 counts\n...\n right", printed) == []
    assert missing_lines("right\nleft", printed) == ["left"]
    assert missing_lines("rmse 12 records", printed) == ["rmse 12 records"]


def said_by(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with contextlib.suppress(SystemExit):
        main(command.removeprefix("$ sfumato ").split())
    out, err = capsys.readouterr()
    return out + err


def test_the_tutorial_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    seen = []
    for kind, text in BLOCK.findall((DOCS / "tutorial.md").read_text()):
        seen.append(kind)
        if kind == "toml":
            Path("release.toml").write_text(text)
        elif kind == "console":
            command, _, shown = text.partition("\n")
            assert missing_lines(shown, said_by(command, capsys)) == [], command
        elif kind == "python":
            held = io.StringIO()
            with contextlib.redirect_stdout(held):
                exec(text, names)  # noqa: S102  the page's own code
            printed = held.getvalue()
        elif kind == "text":
            assert missing_lines(text, printed) == []
    assert {"toml", "console", "python", "text"} <= set(seen)


@pytest.mark.parametrize("page", HOW_TO, ids=lambda p: p.name)
def test_the_examples_of_a_how_to_page_hold(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_how_to_pages_have_examples() -> None:
    with_examples = [p.name for p in HOW_TO if ">>> " in p.read_text()]
    assert len(with_examples) >= 6


def test_the_server_of_the_how_to_page_can_be_read(tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / "how-to" / "server.md").read_text())
    (config,) = (text for kind, text in blocks if kind == "toml")
    (spec,) = (t for k, t in BLOCK.findall((DOCS / "tutorial.md").read_text()) if k == "toml")
    (tmp_path / "server.toml").write_text(config)
    (tmp_path / "release.toml").write_text(spec)
    found = read_config(tmp_path / "server.toml")
    assert list(found.datasets) == ["adult"]
