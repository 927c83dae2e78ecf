# SPDX-License-Identifier: Apache-2.0
"""The private side of a stream: it shows nothing, is never copied, and loses nothing on failure."""

from __future__ import annotations

import copy
import os
import pickle

import pytest

from sfumato.errors import SfumatoError
from sfumato.planning.stream_plans import STRATEGIES, StreamForecast, forecast_stream
from sfumato.privacy.budget import Budget
from sfumato.vault.mechanisms.stream_noise import PrivateStream
from tests.shared.words import SeededWords

MU = Budget(mu=1)


def planned(strategy: str = "optimal", width: int | None = None) -> StreamForecast:
    return forecast_stream(30, MU, strategy=strategy, width=width, largest=10)


def numbers(held: object) -> int:
    """How many numbers a stream holds, counted in its own state."""
    if isinstance(held, int):
        return 1
    if isinstance(held, list):
        return sum(numbers(h) for h in held)
    return sum(numbers(getattr(held, name)) for name in held.__slots__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("width", [None, 7])
def test_the_state_never_grows_and_is_no_larger_than_stated(
    strategy: str, width: int | None
) -> None:
    plan = planned(strategy, width)
    stream = PrivateStream(plan, 1, SeededWords(1))
    for step in range(30):
        stream.measure([step % 11])
        assert numbers(stream._states) <= plan.state_size


def test_nothing_is_shown_copied_or_pickled() -> None:
    stream = PrivateStream(planned(), 1, SeededWords(2))
    stream.measure([7])
    assert repr(stream) == repr(stream._states[0]) == "<exact counts: not shown>"
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SfumatoError):
            attempt(stream)
        with pytest.raises(SfumatoError):
            attempt(stream._states[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only: what is tested is a fork")
def test_a_forked_child_cannot_go_on() -> None:
    stream = PrivateStream(planned(), 1, SeededWords(3))
    child = os.fork()
    if child == 0:
        try:
            stream.measure([1])
        except SfumatoError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    stream.measure([1])  # the parent goes on


@pytest.mark.parametrize("strategy", ["optimal", "tree"])
def test_a_failure_of_the_noise_leaves_the_state_as_it_was(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sfumato.vault.mechanisms.stream_noise as module

    plan = planned(strategy)
    plain = PrivateStream(plan, 1, SeededWords(4))
    broken = PrivateStream(plan, 1, SeededWords(4))
    expected = [plain.measure([x]) for x in (3, 9)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "block_noise", _fails)
        with pytest.raises(OSError, match="no words"):
            broken.measure([3])
    assert [broken.measure([x]) for x in (3, 9)] == expected


def _fails(_law: object, _size: int, _random: object) -> None:
    raise OSError("no words")


def test_a_new_stream_has_new_noise() -> None:
    plan = planned()
    first, second = (PrivateStream(plan, 1) for _ in range(2))
    assert first.measure([0]) != second.measure([0])


def test_another_process_cannot_go_on_and_this_one_can(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PrivateStream(planned(), 1, SeededWords("fork"))
    stream.measure([1])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(SfumatoError, match="open a new stream here"):
        stream.measure([1])
    monkeypatch.undo()
    assert stream.step == 1
    stream.measure([1])
    assert stream.step == 2


@pytest.mark.parametrize("values", [[], [1], [1, 2, 3]])
def test_each_coordinate_has_its_value_or_nothing_is_measured(values: list[int]) -> None:
    stream = PrivateStream(planned(), 2, SeededWords(4))
    with pytest.raises(ValueError, match="zip"):
        stream.measure(values)
    assert stream.step == 0
    assert len(stream.measure([1, 2])) == 2
