# SPDX-License-Identifier: Apache-2.0
"""The configuration is obeyed or refused: ledgers, totals, allowances; and what --check finds."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.cli.main import main
from sfumato.errors import LedgerError, SchemaError, SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato_web.server.config import faults, open_ledger, read_config
from tests.http.served import write_served
from tests.unit.cli.conftest import SPEC

Change = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path) -> Change:
    """Write the configuration anew with some parts changed; its path."""
    path = write_served(tmp_path)
    plain = path.read_text().replace("[server]\n", "[server]\nport = 0\n")

    def changed(*changes: tuple[str, str]) -> Path:
        text = plain
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path.write_text(text)
        return path

    return changed


def opened(path: Path) -> Ledger:
    found = read_config(path)
    return open_ledger(found.datasets["people"], found)


def test_a_ledger_that_is_not_there_is_created_only_if_the_file_says_so(config: Change) -> None:
    path = config(("create = true\n", ""))
    with pytest.raises(LedgerError, match=r"sfumato ledger create .*people.ledger") as refused:
        opened(path)
    assert "create = true for dataset 'people'" in str(refused.value)
    assert any("sfumato ledger create" in fault for fault in faults(read_config(path)))
    assert not (path.parent / "people.ledger").exists()
    assert faults(read_config(config())) == []
    assert not (path.parent / "people.ledger").exists()  # a check writes nothing
    assert opened(config()).unit == "row"
    assert opened(path).budget == Budget(epsilon=4)  # and now it is there


def test_a_lowered_total_takes_effect_and_a_raised_one_needs_its_command(config: Change) -> None:
    opened(config()).debit(Cost.pure(Budget(epsilon=1).pure_epsilon), {}, "a")
    lowered = config(("{epsilon = 4}", "{epsilon = 2}"))
    assert faults(read_config(lowered)) == []
    book = opened(lowered)
    assert book.budget == Budget(epsilon=2)
    assert book.remaining().pure_epsilon == 1
    assert "lowered in server.toml" in book.changes()[-1].describe()
    opened(lowered)
    assert len([c for c in book.changes() if "total" in c.describe()]) == 1  # once
    raised = config(("{epsilon = 4}", "{epsilon = 8}"))
    [fault] = faults(read_config(raised))
    assert "sfumato ledger raise" in fault
    with pytest.raises(LedgerError, match=r"--epsilon 8 --reason"):
        opened(raised)
    book.set_total(Budget(epsilon=8), "the board has agreed", by="cora")
    assert opened(raised).remaining().pure_epsilon == 7
    spent_already = config(("{epsilon = 4}", '{epsilon = "0.5"}'), ("{epsilon = 2}", "{rho = 1}"))
    assert opened(spent_already).remaining().share == 0
    assert book.verify().problems == ()


def test_an_allowance_that_is_taken_out_of_the_file_is_withdrawn(config: Change) -> None:
    line = "allowance.people = {epsilon = 2}\n"
    assert [a.analyst for a in opened(config()).allowances()] == ["ada"]
    [held] = opened(config((line, "allowance.people = {epsilon = 1}\n"))).allowances()
    assert held.budget == Budget(epsilon=1)
    book = opened(config((line, "")))
    assert book.allowances() == ()
    assert book.changes()[-1].describe() == "allowance of ada withdrawn"
    opened(config((line, "")))
    assert len(book.changes()) == 3  # nothing is written twice
    assert book.verify().problems == ()


def test_a_ledger_of_another_unit_is_not_served(config: Change) -> None:
    opened(config())
    path = config(
        ('source = "people.csv"\n', 'source = "people.csv"\nunit = "id"\nrows_per_unit = 2\n')
    )
    with pytest.raises(LedgerError, match="protects one row"):
        opened(path)
    assert any("protects one row" in fault for fault in faults(read_config(path)))


SESSION = "[datasets.people.session]\nepsilon = 1\n{}\n[datasets.others]"
FAULTS = {
    "state folder": (('state = "server.state"', 'state = "none/server.state"'), "does not exist"),
    "state is a folder": (('state = "server.state"', 'state = "."'), "no file that can be"),
    "host": (("port = 0\n", 'port = 0\nhost = "203.0.113.7"\n'), "cannot be served"),
    "host name": (("port = 0\n", 'port = 0\nhost = "nowhere.invalid"\n'), "cannot be served"),
    "postgres": (
        ('"people.ledger"', '"postgresql://me@127.0.0.1:1/none?connect_timeout=2"'),
        "dataset 'people'",
    ),
    "updates": (("[datasets.others]", SESSION.format("updates = 20000\n")), "10,000"),
    "source": (('"people.csv"', '"nowhere.csv"'), "nowhere.csv"),
    "columns": (('source = "people.csv"', 'source = "numbers.csv"'), "age"),
    "public": (("[datasets.others]", SESSION.format('public = "nowhere.csv"\n')), "nowhere.csv"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_opens_what_the_server_would_open(config: Change, fault: str) -> None:
    change, words = FAULTS[fault]
    path = config(change)
    (path.parent / "numbers.csv").write_text("a,b\n1,2\n")
    found = faults(read_config(path))
    assert any(words in each for each in found), found
    assert len(found) == 1
    with pytest.raises(SystemExit):
        main(["serve", str(path), "--check", "--no-page"])


REFUSED = {
    "session": (
        ("[datasets.others]", SESSION.format("")),
        ("epsilon = 1\n\n[", "epsilon = 100\n\n["),
    ),
    "allowance": (("allowance.people = {epsilon = 2}", "allowance.people = {epsilon = 100}"),),
    "password": (('"people.ledger"', '"postgresql://me:secret@127.0.0.1/people"'),),
    "password in a parameter": (
        ('"people.ledger"', '"postgresql://me@127.0.0.1/people?password=secret"'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_parts_larger_than_the_whole_and_passwords_are_refused_with_their_line(
    config: Change, fault: str
) -> None:
    with pytest.raises(
        SchemaError, match=r"server.toml, line \d+: .*(whole table|password)"
    ) as told:
        read_config(config(*REFUSED[fault]))
    assert "secret" not in str(told.value)


def test_parts_are_compared_with_the_ledger_where_a_spec_gives_no_total(config: Change) -> None:
    path = config()
    spec = SPEC.replace("epsilon = 3\ndelta = 1e-9\n", "")
    (path.parent / "release.toml").write_text(spec)
    text = path.read_text()
    start, end = text.index('source = "people.csv"'), text.index("[datasets.others]")
    text = text[:start] + 'spec = "release.toml"\n\n' + text[end:]
    path.write_text(text.replace("{epsilon = 2}", "{epsilon = 100}"))
    found = read_config(path)
    open_ledger(found.datasets["people"], found).close()
    [fault] = faults(found)
    assert "'ada' may spend epsilon = 100, the whole table only epsilon = 1" in fault


def test_nothing_is_said_to_be_served_before_everything_is_open(
    config: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    from sfumato_web.commands import serve

    path = config(("create = true\n", ""))
    with pytest.raises(SfumatoError, match="there is no ledger"):
        serve(path, page=False)
    assert "Serving" not in capsys.readouterr().err


def test_a_port_that_is_taken_is_found(config: Change) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [fault] = faults(read_config(config(("port = 0\n", f"port = {port}\n"))))
    assert "cannot be served" in fault


def test_a_start_that_fails_says_why_in_its_last_line(config: Change) -> None:
    """A dataset that was opened before the one that fails lets go of its table."""
    path = config(("[datasets.others]", SESSION.format("")))
    (path.parent / "others.ledger").write_text("garbage")
    ran = subprocess.run(
        [sys.executable, "-m", "sfumato", "serve", str(path), "--no-page"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    [line] = ran.stderr.splitlines()
    assert "others.ledger cannot be read" in line
