# SPDX-License-Identifier: Apache-2.0
"""Faults of a configuration are refused with the line, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.cli.main import main
from sfumato.errors import SchemaError
from sfumato_web.server.config import hash_of, read_config
from tests.http.served import ADA, CONFIG, write_served
from tests.unit.cli.conftest import SPEC

FAULTS = [
    ('source = "people.csv"', "", "line 7: datasets.people: the key 'source' is missing"),
    ("budget = {epsilon = 4}", "", "datasets.people: the key 'budget' is missing"),
    (
        "budget = {epsilon = 4}",
        "budget = {epsilon = -4}",
        "line 13: datasets.people.budget.epsilon",
    ),
    ('domain = "people.toml"', 'domain = "no.toml"', "no.toml: there is no such file"),
    (f'"{hash_of(ADA)}"', f'"{ADA}"', "never the token itself"),
    ('datasets = ["people"]', 'datasets = ["poeple"]', "did you mean 'people'"),
    ('datasets = ["people"]', 'datasets = ["others"]', "none of their datasets"),
    ('role = "curator"', 'role = "king"', "analysts.cora.role"),
    ("planning_seconds = 60.0", "planning_secs = 60.0", "did you mean 'planning_seconds'"),
    ("planning_seconds = 60.0", "body_bytes = 0", "limits.body_bytes"),
    ("planning_seconds = 60.0", "cells = 39", "limits.cells allows 39"),
    ('source = "others.csv"', 'source = "people.csv"', "has the same source as 'people'"),
    ('ledger = "others.ledger"', 'ledger = "people.ledger"', "has the same ledger as 'people'"),
    ("[datasets.people]", "[datasets.'../people']", "datasets"),
    ("state = ", "grid_milliseconds = 0.0\nstate = ", "server.grid_milliseconds"),
]


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_a_fault_is_told_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CONFIG
    path = write_served(tmp_path / "served", CONFIG.replace(old, new, 1))
    with pytest.raises(SchemaError) as refused:
        read_config(path)
    assert message in str(refused.value)
    assert "server.toml" in str(refused.value) or "no.toml" in str(refused.value)


def test_two_people_do_not_share_a_token(tmp_path: Path) -> None:
    lines = [
        f'token = "{hash_of(ADA)}"' if line.startswith("token") else line
        for line in CONFIG.splitlines()
    ]
    with pytest.raises(SchemaError, match="also that of 'ada'"):
        read_config(write_served(tmp_path / "served", "\n".join(lines)))


@pytest.mark.parametrize("part", ["datasets", "analysts"])
def test_a_server_needs_something_to_serve_and_somebody_to_ask(tmp_path: Path, part: str) -> None:
    kept = [t for t in CONFIG.split("\n\n") if not t.startswith(f"[{part}")]
    with pytest.raises(SchemaError, match=f"{part}.NAME"):
        read_config(write_served(tmp_path / "served", "\n\n".join(kept)))


def test_a_dataset_can_be_a_spec(tmp_path: Path) -> None:
    path = write_served(tmp_path / "served", CONFIG.replace("people", "peeps"))
    rule = "[constraints]\nimpossible = [\"age = 3 and sex = 'Male'\"]\n"
    (path.parent / "release.toml").write_text(SPEC + rule)
    start = path.read_text()
    cut = start.index("source ="), start.index("[datasets.others]")
    path.write_text(start[: cut[0]] + 'spec = "release.toml"\n\n' + start[cut[1] :])
    (path.parent / "peeps.toml").write_text((path.parent / "people.toml").read_text())
    found = read_config(path).datasets["peeps"]
    assert (found.table_id, found.domain.size) == ("people", 40)
    assert found.constraints is not None
    assert found.ledger.endswith("people.ledger")
    assert found.total is not None
    assert found.total.epsilon == 3
    path.write_text(path.read_text().replace("spec =", 'source = "people.csv"\nspec ='))
    with pytest.raises(SchemaError, match="leave source out"):
        read_config(path)


def test_a_spec_without_a_ledger_is_not_served(tmp_path: Path) -> None:
    path = write_served(tmp_path / "served")
    (path.parent / "release.toml").write_text(SPEC[: SPEC.index("[ledger]")])
    text = path.read_text()
    cut = text.index("source ="), text.index("[datasets.others]")
    path.write_text(text[: cut[0]] + 'spec = "release.toml"\n\n' + text[cut[1] :])
    with pytest.raises(SchemaError, match="names no ledger"):
        read_config(path)


def test_the_command_line_checks_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_served(tmp_path / "served")
    with pytest.raises(SystemExit) as left:
        main(["serve", str(path), "--check", "--json"])
    assert left.value.code == 0
    assert '"people"' in capsys.readouterr().out
    assert not (path.parent / "people.ledger").exists()
    path.write_text("[server]\nprot = 1\n")
    with pytest.raises(SystemExit) as left:
        main(["serve", str(path), "--check"])
    assert left.value.code == 2
    assert "did you mean 'port'" in capsys.readouterr().err


def test_the_example_in_the_documentation_is_a_configuration(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    text = page.split("```toml")[1].split("```")[0]
    for who in ("ada", "cora", "prometheus"):
        text = text.replace('"sha256:..."', f'"{hash_of(who)}"', 1)
    path = write_served(tmp_path / "served", text.replace("people.parquet", "people.csv"))
    (path.parent / "release.toml").write_text(
        SPEC.replace("people.csv", "others.csv").replace("people.ledger", "adult.ledger")
    )
    found = read_config(path)
    assert set(found.datasets) == {"people", "adult"}
    assert found.datasets["people"].session is not None
    assert [a.role for a in found.analysts] == ["analyst", "curator", "scraper"]


def test_a_spec_without_queries_can_be_served(tmp_path: Path) -> None:
    """Its workload is not used: analysts ask."""
    path = write_served(tmp_path / "served")
    first, _, rest = SPEC.partition("[[workload]]")
    (path.parent / "release.toml").write_text(first + rest[rest.index("[budget]") :])
    analyst = f'[analysts.ada]\ntoken = "{hash_of(ADA)}"\ndatasets = ["people"]\n'
    allowance = "allowance.people = {epsilon = 1}\n"
    server = '[server]\nstate = "server.state"\n\n[datasets.people]\nspec = "release.toml"\n\n'
    path.write_text(server + analyst + allowance)
    assert list(read_config(path).datasets["people"].domain.names) == ["age", "sex"]


def test_an_address_in_use_is_refused_before_anything_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    path = write_served(tmp_path / "served")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as left:
        main(["serve", str(path), "--port", str(taken.getsockname()[1])])
    assert left.value.code == 2
    assert "give another --port" in capsys.readouterr().err
    assert not (path.parent / "people.ledger").exists()
