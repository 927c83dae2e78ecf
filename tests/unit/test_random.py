# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from sfumato import random
from sfumato.errors import PlanError
from sfumato.random import SystemWords, choose, integers_below, system_words
from tests.shared.words import GivenWords, SeededWords


def test_the_stream_is_aes_256_in_counter_mode(monkeypatch):
    """NIST SP 800-38A, F.5.5: the key, the first counter and the four output blocks."""
    key = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
    counter = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
    blocks = (
        "0bdf7df1591716335e9a8b15c860c502"
        "5a6e699d536119065433863c8f657b94"
        "1bc12c9c01610d5d0d8bd6a3378eca62"
        "2956e1c8693536b1bee99c73a31576b6"
    )
    secrets = {32: bytes.fromhex(key), 16: bytes.fromhex(counter)}
    monkeypatch.setattr(os, "urandom", lambda count: secrets[count])
    assert SystemWords().words(8).tobytes() == bytes.fromhex(blocks)


@pytest.mark.parametrize("sizes", [[1] * 9000, [4000, 200, 4096, 1], [5000, 3, 70_000, 3]])
def test_words_never_repeat_across_pools_and_slices(sizes):
    source = SystemWords()
    drawn = np.concatenate([source.words(size) for size in sizes])
    assert drawn.dtype == np.uint64
    # Even one repeat among 75 000 true 64-bit words has probability below 2e-10.
    assert np.unique(drawn).size == sum(sizes)


def test_words_given_out_are_erased_from_the_pool():
    source = SystemWords()
    assert source.words(10).all()
    assert not source._pool[:10].any()
    assert source._pool[10:].all()


def test_a_key_is_replaced_before_it_has_given_too_many_words(monkeypatch):
    keys = []
    fresh = random._new_stream
    monkeypatch.setattr(random, "_new_stream", lambda: keys.append(1) or fresh())
    limits = replace(random.LIMITS, words_per_key=1000, slice_words=300)
    monkeypatch.setattr(random, "LIMITS", limits)
    source = SystemWords()
    # Slices of 300 words: three fit one key of 1000, so 9000 words take ten keys.
    assert np.unique(source.words(9000)).size == 9000
    assert len(keys) == 10


def test_a_large_request_equals_the_small_ones_of_the_same_key(monkeypatch):
    secrets = {32: bytes(32), 16: bytes(16)}
    monkeypatch.setattr(os, "urandom", lambda count: secrets[count])
    pooled, sliced = SystemWords(), SystemWords()
    small = np.concatenate([pooled.words(1024) for _ in range(256)])
    assert np.array_equal(small, sliced.words(256 * 1024))


def test_a_copy_or_a_pickle_is_a_new_stream():
    source = SystemWords()
    source.words(1)
    for twin in (copy.copy(source), copy.deepcopy(source), pickle.loads(pickle.dumps(source))):  # noqa: S301
        assert not np.intersect1d(twin.words(100), source.words(100)).size


def test_system_words_is_one_source_per_process():
    assert system_words() is system_words()


def words_of_a_forked_child(source: SystemWords, before=lambda: None) -> np.ndarray:
    """Fork, draw 8 words in the child, and give them to the parent through a pipe."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)  # a child that waits for a dead lock must not hang the tests
            before()
            os.write(write, source.words(8).tobytes())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        given = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return np.frombuffer(given, dtype=np.uint64)


@pytest.fixture
def warm_source():
    source = SystemWords()
    source.words(3)
    return source


def test_a_forked_child_does_not_repeat_the_parent(warm_source):
    child = words_of_a_forked_child(warm_source)
    assert not np.intersect1d(child, warm_source.words(4096)).size


def test_a_child_whose_fork_hook_did_not_run_is_caught_by_its_process_id(warm_source):
    random._SOURCES.discard(warm_source)
    child = words_of_a_forked_child(warm_source)
    assert not np.intersect1d(child, warm_source.words(4096)).size


def test_a_source_without_both_fences_repeats_the_parent(warm_source):
    """The twin: if this child did not repeat, the two tests above would prove nothing."""
    random._SOURCES.discard(warm_source)

    def forge_process_id():
        warm_source._pid = os.getpid()

    child = words_of_a_forked_child(warm_source, forge_process_id)
    assert np.array_equal(child, warm_source.words(8))


def test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child(warm_source):
    with warm_source._lock:
        child = words_of_a_forked_child(warm_source)
    assert not np.intersect1d(child, warm_source.words(4096)).size


def words_of_threads(source: SystemWords, draws: int = 20_000) -> np.ndarray:
    drawn: list[np.ndarray] = []

    def run() -> None:
        drawn.append(np.concatenate([source.words(1) for _ in range(draws)]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return np.concatenate(drawn)


def test_threads_never_share_a_word():
    drawn = words_of_threads(SystemWords())
    assert np.unique(drawn).size == drawn.size == 80_000


def test_threads_without_the_lock_share_words():
    """The twin: a request that another thread may interrupt hands out the same word twice."""
    source = SystemWords()
    source.words(1)
    source._lock = contextlib.nullcontext()  # type: ignore[assignment]
    halfway = threading.Barrier(2)

    class Interrupted(np.ndarray):
        def copy(self, order="C"):
            halfway.wait(timeout=600)  # both threads have chosen their words, none has moved on
            return np.array(self, order=order)

    source._pool = source._pool.view(Interrupted)
    drawn = []
    threads = [threading.Thread(target=lambda: drawn.append(source.words(4))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The slower thread gets the faster one's words again, or the zeros it left behind.
    assert np.array_equal(drawn[0], drawn[1]) or not drawn[0].all() or not drawn[1].all()


@pytest.mark.parametrize("count", [-1, -(2**70)])
def test_a_negative_number_of_words_is_refused(count):
    with pytest.raises(PlanError, match="0 or more"):
        SystemWords().words(count)


@pytest.mark.parametrize("bound", range(1, 17))
def test_integers_below_gives_each_value_once_over_all_short_words(bound):
    """Over every pattern of the low bits, each value comes out once and the rest are rejected."""
    bits = (bound - 1).bit_length()
    kept = []
    for pattern in range(1 << bits):
        given = GivenWords([(0x9E3779B97F4A7 << bits) | pattern, 0])  # high bits must not matter
        drawn = integers_below(bound, 1, given)
        if given.used == 1:
            kept.append(int(drawn[0]))
    assert kept == list(range(bound))


def test_integers_below_reaches_the_largest_bound():
    given = GivenWords([(1 << 64) - 1, 0])
    assert integers_below(1 << 63, 2, given).tolist() == [(1 << 63) - 1, 0]


@pytest.mark.parametrize("bound", [0, -1, (1 << 63) + 1])
def test_integers_below_refuses_a_bound_outside_its_range(bound):
    with pytest.raises(PlanError, match="bound"):
        integers_below(bound, 1, SeededWords(0))


@pytest.mark.parametrize("weights", [[1, 2, 1], [0, 3, 0, 5], [4], [2, 0, 2, 4, 0]])
def test_choose_gives_each_place_as_many_patterns_as_its_weight(weights):
    total = sum(weights)
    patterns = range(1 << (total - 1).bit_length())
    kept = [pattern for pattern in patterns if pattern < total]
    drawn = choose(weights, len(kept), GivenWords(kept))
    assert np.bincount(drawn, minlength=len(weights)).tolist() == weights


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1, 5], [1 << 62, 1 << 62]])
def test_choose_refuses_weights_without_a_law(weights):
    with pytest.raises(PlanError, match="weights"):
        choose(weights, 1, SeededWords(0))


def test_a_negative_number_of_draws_is_refused():
    with pytest.raises(PlanError, match="0 or more"):
        integers_below(5, -1, SeededWords(0))
