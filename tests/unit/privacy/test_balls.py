# SPDX-License-Identifier: Apache-2.0
"""The precision of balls: one setting for the process, which one place guards."""

from __future__ import annotations

import os
import signal
import threading
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato
from sfumato.privacy import gaussian
from sfumato.privacy.balls import precision


def test_only_one_place_sets_the_precision():
    """Two locks for one setting would guard nothing: each could undo what the other set."""
    root = Path(sfumato.__file__).parent
    setting = {p.name for p in root.rglob("*.py") if "workprec" in p.read_text()}
    assert setting == {"balls.py"}


def test_a_curve_waits_for_a_block_of_another_precision():
    from flint import ctx

    before, seen = ctx.prec, []
    asking = threading.Thread(
        target=lambda: seen.append(gaussian.gaussian_delta_up(Fraction(1, 7), Fraction(2, 3)))
    )
    with precision(1234):
        asking.start()
        asking.join(0.05)  # as long as it likes: it cannot come in
        assert not seen
        assert ctx.prec == 1234
    asking.join()
    assert seen == [gaussian.gaussian_delta_up(Fraction(1, 7), Fraction(2, 3))]
    assert ctx.prec == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_is_inside_does_not_hang_the_child():
    is_inside, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with precision(128):
            is_inside.set()
            is_done.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    is_inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that would wait for ever
        with precision(96):
            os._exit(0)
    _, status = os.waitpid(child, 0)
    is_done.set()
    holding.join()
    assert status == 0
