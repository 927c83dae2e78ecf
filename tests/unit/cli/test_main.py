# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from sfumato.cli.main import FRAMES, GROUP, guarded
from sfumato.errors import BudgetError
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]

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


COMMANDS = [
    ("demo",),
    ("draft",),
    ("plan",),
    ("release",),
    ("select",),
    ("compare",),
    ("audit",),
    ("ask",),
    ("serve",),
    ("token",),
    ("ledger",),
    ("ledger", "create"),
    ("ledger", "raise"),
    ("ledger", "show"),
    ("ledger", "verify"),
    ("ledger", "freeze"),
    ("ledger", "unfreeze"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples_that_start_with_it(
    command: tuple[str, ...], run: Run
) -> None:
    ran = run(*command, "--help")
    assert ran.code == 0
    _, _, examples = ran.out.partition("Examples")
    assert f"sfumato {' '.join(command)}" in examples
    assert "[bold]" not in ran.out


def test_help_lists_every_command(run: Run) -> None:
    text = run("--help").out
    for command in COMMANDS:
        assert f" {command[0]} " in text
    assert "Usage: sfumato [OPTIONS] COMMAND" in text


def test_the_version_is_that_of_the_package(run: Run) -> None:
    import sfumato

    assert run("--version").out == f"sfumato {sfumato.__version__}\n"


def _loaded(names: list[str]) -> list[str]:
    """Which of some packages are loaded once the help has listed every own command."""
    code = (
        "import sys, sfumato.cli.main as m\n"
        "commands = [m._Commands()[name] for name in m._OWN]\n"
        f"print(*(name for name in {names} if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_help_loads_no_heavy_library() -> None:
    """`sfumato --help` answers at once because bodies import what they need."""
    heavy = ["ibis", "duckdb", "pandas", "pyarrow", "altair", "pydantic", "sqlalchemy", "sqlglot"]
    assert _loaded(heavy) == []


def test_the_server_and_the_audit_register_their_commands() -> None:
    assert _loaded(["sfumato_web", "sfumato_audit"]) == []
    points = entry_points(group=GROUP)
    assert {point.name for point in points} == {"serve", "token", "admin", "audit"}


def test_a_misspelled_command_is_told_its_neighbour(run: Run) -> None:
    for wrong, right in (("plam", "plan"), ("serv", "serve"), ("audti", "audit")):
        ran = run(wrong)
        assert ran.code == 2
        assert f"Did you mean '{right}'" in ran.err
