# SPDX-License-Identifier: Apache-2.0
"""Tokens, limits, the time grid and the response store, each by itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.cli.main import main
from sfumato.errors import SfumatoError, TooLarge
from sfumato_web.server import server_limits
from sfumato_web.server.config import HASH, Tokens, hash_of, new_token
from sfumato_web.server.responses import Grid, ResponseStore, prometheus
from sfumato_web.server.server_limits import (
    LimitsTable,
    Rates,
    check_entries,
    check_workload,
    is_too_deep,
)
from tests.http.served import Clock

STEP = 2**-7  # a power of two, so that multiples are exact


def test_tokens_are_new_and_kept_as_hashes() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) >= 43 and HASH.fullmatch(hash_of(token)) for token in made)


@pytest.mark.parametrize(
    "header", ["Bearer sfu_a", "bearer sfu_a", "BEARER sfu_a", "Bearer  sfu_a "]
)
def test_a_token_finds_its_holder(header: str) -> None:
    assert Tokens({hash_of("sfu_a"): "ada"}.get).holder(header) == "ada"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer sfu_b", "Basic sfu_a", "sfu_a", hash_of("sfu_a"), "Bearer \ud800"],
)
def test_anything_else_finds_nobody(header: str | None) -> None:
    assert Tokens({hash_of("sfu_a"): "ada"}.get).holder(header) is None


def test_the_command_line_makes_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["token", "--json"])
    made = json.loads(capsys.readouterr().out)
    assert made["hash"] == hash_of(made["token"])


def _depth(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value
    is_open = isinstance(value, list | dict)
    return 1 + max((_depth(v) for v in inside), default=0) if is_open else 0  # type: ignore[union-attr]


@settings(deadline=None, max_examples=40)
@given(
    st.recursive(
        st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=8
    ),
    st.integers(0, 6),
)
def test_nesting_is_measured_as_json_nests(value: object, most: int) -> None:
    assert is_too_deep(json.dumps(value).encode(), most) == (_depth(value) > most)


def test_a_string_that_is_never_closed_is_gone_over_once() -> None:
    """Begun anew at every escaped quotation mark, 64 KiB of them took seconds."""
    open_string = b'\\"' * 20_000 + b"[" * 20
    assert [mark.span() for mark in server_limits._MARKS.finditer(open_string)] == [
        (1, len(open_string))
    ]
    assert not is_too_deep(open_string, 16)  # no JSON; the reader refuses it
    assert is_too_deep(b"[[[" + open_string, 2)


def test_rates_let_a_burst_through_and_then_a_steady_flow() -> None:
    clock = Clock()
    rates = Rates(2.0, 3, clock)
    assert [rates.wait("ada") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.wait("bob") == 0  # one does not pay for the other
    clock.now = 0.5
    assert [rates.wait("ada") for _ in range(2)] == [0, 0.5]
    clock.now = 1000.0
    assert [rates.wait("ada") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_workload_is_refused_by_its_size_before_it_is_built() -> None:
    domain = sf.Domain({f"a{i}": 10 for i in range(100)})
    with pytest.raises(TooLarge, match="161,700 groups"):
        check_entries([{"marginals": 3}], domain, LimitsTable())
    check_entries([{"marginals": 3, "attributes": ["a1", "a2", "a3"]}], domain, LimitsTable())
    wide = sf.Domain({"time": 10**6})
    with pytest.raises(TooLarge, match="500,000,500,000 queries"):
        check_workload(sf.ranges(wide, "time"), LimitsTable())


@pytest.mark.parametrize("took", [0.0, STEP / 7, STEP * 0.999, STEP])
def test_answers_that_took_less_than_a_step_leave_together(took: float) -> None:
    clock = Clock(now=3.0)
    grid = Grid(STEP, clock, clock.sleep)
    clock.now += took
    asyncio.run(grid.wait(3.0))
    assert clock.now == 3.0 + STEP


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_answers_leave_on_the_grid(micros: int) -> None:
    clock = Clock(now=5.0)
    grid = Grid(STEP, clock, clock.sleep)
    clock.now += micros * 2**-20
    asyncio.run(grid.wait(5.0))
    assert ((clock.now - 5.0) / STEP).is_integer()
    assert clock.now >= 5.0 + STEP


def test_a_clock_that_wakes_early_is_sent_to_sleep_again() -> None:
    clock = Clock()

    async def short(seconds: float) -> None:
        await clock.sleep(seconds / 2 if len(clock.slept) < 3 else seconds)

    asyncio.run(Grid(STEP, clock, short).wait(0.0))
    assert clock.now == STEP
    assert len(clock.slept) == 4


def test_the_store_keeps_what_came_first(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "state", 10)
    assert store.body("d", "k") is None
    assert store.keep([("d", "k", b"first"), ("d", "k", b"second")]) == [b"first", b"first"]
    assert store.keep([("e", "k", b"other" * 9)]) == [b"other" * 9]  # more than is kept in memory
    assert store.body("d", "k") == b"first"
    store.close()
    again = ResponseStore(tmp_path / "state", 10)
    assert again.body("d", "k") == b"first"
    assert again.bind([("ada", "x", "r1"), ("ada", "x", "r1"), ("ada", "x", "r2")]) == [
        True,
        True,
        False,
    ]
    assert again.bind([("bob", "x", "r2")]) == [True]
    again.close()


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("this is no database, it is a text of some length" * 20)
    with pytest.raises(SfumatoError, match="cannot be opened"):
        ResponseStore(tmp_path / "state", 10)


def test_labels_of_metrics_are_escaped() -> None:
    assert prometheus("m", "gauge", "a", [({"x": 'a"b\\\n'}, 1)]).endswith(
        'm{x="a\\"b\\\\\\n"} 1\n'
    )
