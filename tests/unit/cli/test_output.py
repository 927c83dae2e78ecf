# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from sfumato.cli.output import (
    Bars,
    Output,
    budget_document,
    check_folder,
    facts,
    filled_folder,
    neighbours_in_words,
    table,
    write_text,
)
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError
from sfumato.privacy.budget import Budget
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


def _text(shown: object, width: int = 60) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_names_from_a_schema_are_never_markup() -> None:
    name = "[red]age[/red] [link=x]"
    assert name in _text(table(["group", "rmse"], [[name, "1"]]))
    assert name in _text(facts([("table", name)]))


def test_narrow_terminals_fold_text_and_keep_numbers_whole() -> None:
    shown = _text(table(["group", "rmse"], [["a long name of a group", "123,456,789"]]), width=30)
    assert "123,456,789" in shown


def test_a_first_column_does_not_vanish_on_narrow_terminals() -> None:
    row = ["12", "a time of a debit", "a cost of a debit"]
    assert "12" in _text(table(["debit", "time", "cost"], [row]), width=40)


@pytest.mark.parametrize(
    ("neighbours", "unit", "words"),
    [
        ("add-remove", None, "one record may be added or removed"),
        ("replace-one", None, "one record may be replaced"),
        ("add-remove", PrivacyUnit("id", 3), "all records of one id (at most 3 are counted)"),
    ],
)
def test_who_is_protected_is_said_in_words(
    neighbours: str, unit: PrivacyUnit | None, words: str
) -> None:
    assert words in neighbours_in_words(neighbours, unit)


def test_a_pure_budget_has_no_delta_in_json() -> None:
    assert budget_document(Budget(epsilon="1/4")) == {"epsilon": 0.25}
    assert budget_document(Budget(rho=2)) == {"rho": 2.0}


def test_bars_show_each_phase_once() -> None:
    shown = Progress(console=Console(file=io.StringIO()))
    found = Bars(shown)
    tell = found.of_release()
    assert tell is not None
    for label, done in (("reading", 0), ("counting", 3), ("measuring", 2)):
        tell(done, 5, label)
    with found.step("writing"):
        pass
    assert [(t.description, t.completed, t.total) for t in shown.tasks] == [
        ("counting", 3, 5),
        ("measuring", 2, 5),
        ("writing", 1, 1),
    ]


def test_hidden_bars_cost_nothing() -> None:
    assert Bars().phase("planning") is None
    assert Bars().of_release() is None


def test_files_appear_together_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    with filled_folder(target) as staging:
        (staging / "a").write_text("1")
        (staging / "b").write_text("2")
        assert not target.exists()
    assert {p.name for p in target.iterdir()} == {"a", "b"}
    assert {p.name for p in tmp_path.iterdir()} == {"new"}


def test_a_failure_inside_the_block_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> None:
        with filled_folder(tmp_path / "out") as staging:
            (staging / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match="No space left"), filled_folder(tmp_path / "out"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["x.toml"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        with pytest.raises(SfumatoError, match="is a file"):
            check_folder(folder)


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_a_question_is_asked_before_anything_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SfumatoError, match="give --yes"):
        Output().confirm("It spends a lot.")
    said = []

    class Terminal:
        def __init__(self, answer: str) -> None:
            self.answer = answer

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.answer

        def write(self, text: str) -> int:
            said.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Terminal(""))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(SfumatoError, match="stopped before"):
        Output().confirm("It spends a lot.")
    assert said == ["It spends a lot. Go on? [y/N] "]
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    Output().confirm("It spends a lot.")


def test_brackets_in_a_line_are_shown(run: Run) -> None:
    assert "[analysts.NAME]" in run("token").out
