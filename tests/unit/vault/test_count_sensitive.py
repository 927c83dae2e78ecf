# SPDX-License-Identifier: Apache-2.0
"""Exact data shows nothing about itself, and errors carry none of it."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import traceback
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pytest

import sfumato
from sfumato.domain.attributes import Boolean, Category, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, SfumatoError, TableError
from sfumato.vault.arrow_codes import Codes
from sfumato.vault.count import Counts, Sensitive, count_conditions, count_marginals
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.engine import sealed
from sfumato.vault.tables import open_table
from sfumato.workload.predicates import In

CANARY = 104_729  # a prime that nothing else in these tests counts to
BOXES = [Sensitive(np.array([CANARY])), Counts({("x",): np.array([CANARY])})]


@pytest.mark.parametrize("box", BOXES, ids=["Sensitive", "Counts"])
def test_no_way_of_showing_exact_counts_shows_them(box):
    for shown in (repr(box), str(box), f"{box}", f"{box!r:>60}", f"{box:,d}", f"{[box]}"):
        assert str(CANARY) not in shown
        assert "not shown" in shown


@pytest.mark.parametrize("box", BOXES, ids=["Sensitive", "Counts"])
@pytest.mark.parametrize(
    "use", [pickle.dumps, copy.copy, copy.deepcopy, list, bool, np.asarray, np.sum, dict]
)
def test_exact_counts_cannot_be_copied_out(box, use):
    with pytest.raises(SfumatoError) as caught:
        use(box)
    assert str(CANARY) not in str(caught.value)


@pytest.mark.parametrize("box", BOXES, ids=["Sensitive", "Counts"])
def test_exact_counts_have_no_dictionary_and_no_json(box):
    with pytest.raises(TypeError):
        vars(box)
    with pytest.raises(TypeError) as caught:
        json.dumps({"counts": box})
    assert str(CANARY) not in str(caught.value)


def test_only_the_vault_reveals():
    """`.reveal(` is the one door; the audit, on tables that it makes up, may look behind it."""
    root = Path(sfumato.__file__).parent
    inside = {root / "vault", root / "audit"}
    outside = [p for p in root.rglob("*.py") if not inside & set(p.parents)]
    assert len(outside) > 20
    assert [p for p in outside if re.search(r"\.reveal\(", p.read_text())] == []


def test_a_sealed_error_keeps_nothing_of_the_one_it_replaces():
    def fail() -> None:
        row = f"secret {CANARY}"
        raise ValueError(row)

    with pytest.raises(TableError, match=r"^cannot be read$") as caught:
        sealed(fail, "cannot be read")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    whole = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    # The frames of this test hold its own constants; those below it must hold nothing.
    assert f"secret {CANARY}" not in "".join(whole.format())


def test_errors_of_the_engine_do_not_quote_values():
    """DuckDB quotes the value that a cast fails on."""
    backend = ibis.duckdb.connect()
    backend.raw_sql(f"CREATE TABLE people AS SELECT 'name-{CANARY}' AS name")
    rows = backend.table("people")
    with pytest.raises(Exception, match=str(CANARY)):
        rows.mutate(name=rows.name.cast("int64")).execute()
    table = open_table(rows.mutate(name=rows.name.cast("int64")))
    with pytest.raises(TableError) as caught:
        count_marginals(table, Domain({"name": 2}), [("name",)])
    whole = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert f"name-{CANARY}" not in "".join(whole.format())


def test_a_distinctive_count_is_found_nowhere(tmp_path, monkeypatch, caplog, capfd, recwarn):
    """Counted, revealed to nobody, made to fail: no log, output, warning or file holds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    domain = Domain([Integer("age", 0, 9), Category("sex", ("F", "M")), Boolean("employed")])
    rows = pa.table(
        {
            "age": np.repeat([3, 4], [CANARY, 17]),
            "sex": np.repeat(["F", "M"], [CANARY, 17]),
            "employed": np.repeat([True, False], [CANARY, 17]),
        }
    )
    table = open_table(rows)
    sets = [("age", "sex"), ("sex", "employed"), ("age",), ()]
    counts = count_marginals(table, domain, sets, progress=lambda *told: logging.info("%s", told))
    met = count_conditions(table, domain, [In("age", (3,)), In("sex", (0,))])
    assert counts.reveal(("age", "sex"))[3, 0] == CANARY
    assert met.reveal().tolist() == [CANARY, CANARY]
    logging.info("%s %s %s %s", counts, met, table, table.records)

    def fail(_: object, query: object, *__: object) -> None:
        raise RuntimeError(f"{query} gave {CANARY}")

    monkeypatch.setattr(DuckDB, "batches", fail)
    monkeypatch.setattr(Codes, "counts", fail)
    with pytest.raises(TableError) as caught:
        count_marginals(table, domain, sets)
    logging.error("failed", exc_info=caught.value)

    out, err = capfd.readouterr()
    warned = " ".join(str(w.message) for w in recwarn)
    canary = re.compile(r"104[,_. ]?729")
    for said in (out, err, caplog.text, warned, repr(table), repr(counts), repr(met)):
        assert not canary.search(said)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            held = path.read_bytes()
            assert str(CANARY).encode() not in held
            assert np.int64(CANARY).tobytes() not in held


def test_the_state_of_a_box_is_not_given_away():
    with pytest.raises(SfumatoError, match="copied or pickled"):
        Sensitive(0).__getstate__()


def test_an_error_of_ours_passes_the_seal_and_all_others_are_replaced():
    def ours():
        raise PlanError("public")

    def foreign():
        raise ValueError("104729")

    with pytest.raises(PlanError, match="public"):
        sealed(ours, "the table cannot be read")
    with pytest.raises(TableError, match=r"^the table cannot be read$") as caught:
        sealed(foreign, "the table cannot be read")
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert sealed(lambda: 3, "not read") == 3
