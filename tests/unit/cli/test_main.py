# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sfumato.cli.main import FRAMES, guarded
from sfumato.errors import BudgetError

CANARY = "the exact count 104729"


def _fail(kind: type[BaseException]) -> None:
    hidden = CANARY  # a local variable of the frame that fails
    raise kind(hidden)


def _left(kind: type[BaseException]) -> int:
    with pytest.raises(SystemExit) as left, guarded():
        _fail(kind)
    assert isinstance(left.value.code, int)
    return left.value.code


def test_errors_on_purpose_show_their_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left(BudgetError) == 2
    assert capsys.readouterr().err == f"sfumato: {CANARY}\n"


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, KeyError, OSError, AssertionError])
@pytest.mark.parametrize("frames", ["", "1"])
def test_other_errors_show_their_type_and_place_but_no_text_and_no_variable(
    kind: type[Exception],
    frames: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FRAMES, frames)
    assert _left(kind) == 1
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "104729" not in caught.err
    assert kind.__name__ in caught.err
    assert "test_main.py, line " in caught.err
    assert ("in _left" in caught.err) == bool(frames)


def test_a_lack_of_memory_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left(MemoryError) == 2
    assert "not enough memory" in capsys.readouterr().err


def test_an_interrupt_has_the_exit_code_of_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left(KeyboardInterrupt) == 130
    assert capsys.readouterr().err == "sfumato: interrupted\n"


def test_the_chain_of_causes_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """`raise ... from` would print the cause, with its text, if the exit were not from None."""
    with pytest.raises(SystemExit) as left, guarded():
        _fail(ValueError)
    assert left.value.__suppress_context__
    capsys.readouterr()
