# SPDX-License-Identifier: Apache-2.0
"""A process is called gone only when that is certain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfumato.ledger import store
from sfumato.ledger.store import is_gone, this_process

NO_PROCESS = 2**22 + 1  # Linux numbers no process above 2^22
on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="NO /proc HERE")


def named(**changes):
    """This process with some words replaced."""
    names = ("machine", "boot", "namespace", "pid", "start")
    words = dict(zip(names, this_process().split(" "), strict=True))
    return " ".join((words | changes).values())


def test_this_process_is_there():
    assert this_process().split(" ")[3] == str(os.getpid())
    assert not is_gone(this_process())


def test_what_names_no_process_is_never_gone():
    for text in ("", "a b c", "a b c d e", named() + " more", named(pid="-1")):
        assert not is_gone(text)


def test_processes_elsewhere_are_never_gone():
    assert not is_gone(named(machine="another", boot="another", pid=str(NO_PROCESS)))
    assert not is_gone(named(namespace="another", pid=str(NO_PROCESS)))


@on_linux
def test_after_another_boot_all_processes_are_gone():
    assert is_gone(named(boot="another"))
    assert not is_gone(named(boot="-"))


def test_without_a_known_boot_nothing_is_certain(monkeypatch):
    before = named()
    monkeypatch.setattr(store, "_place", lambda: (before.split(" ")[0], "-", "-"))
    assert not is_gone(before)


def test_without_a_known_machine_nothing_is_certain(monkeypatch):
    monkeypatch.setattr(store, "_place", lambda: ("-", "one", "-"))
    assert not is_gone(f"- another - {NO_PROCESS} 1")


@on_linux
def test_a_number_that_another_process_has_now_is_gone():
    assert is_gone(named(start="1"))
    assert is_gone(named(pid=str(NO_PROCESS)))


def test_without_a_start_time_the_number_decides():
    assert not is_gone(named(start="-"))
    assert is_gone(named(start="-", pid=str(NO_PROCESS)))


def test_a_number_of_somebody_else_is_in_use(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_gone(named(start="-"))


@on_linux
def test_a_process_that_ended_is_gone_before_anybody_waited_for_it():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert store._start_time(child) is None
        assert is_gone(named(pid=str(child), start="1"))
    finally:
        os.waitpid(child, 0)


@on_linux
def test_a_child_has_its_own_name():
    out, into = os.pipe()
    parent = this_process()
    child = os.fork()
    if child == 0:
        os.write(into, this_process().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    with os.fdopen(out) as pipe:
        assert pipe.read().split(" ")[3] == str(child)
    assert this_process() == parent


@on_linux
def test_the_start_time_is_the_22nd_word_also_after_odd_names(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    words = ["S", *(str(i) for i in range(4, 53))]  # the third word of the line on
    stat.write_text(f"7 (a) b (c) {' '.join(words)}\n")
    monkeypatch.setattr(store, "Path", lambda _: stat)
    assert store._start_time(7) == "22"
    for state in "ZX":
        stat.write_text(f"7 (sh) {' '.join([state, *words[1:]])}\n")
        assert store._start_time(7) is None


def test_unreadable_and_empty_files_tell_nothing(tmp_path):
    assert store._first_line(str(tmp_path / "none")) is None
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "two").write_text("first second\nthird\n")
    assert store._first_line(str(tmp_path / "empty")) is None
    assert store._first_line(str(tmp_path / "bytes")) is None
    assert store._first_line(str(tmp_path / "two")) == "first"


def test_the_machine_and_the_boot_are_those_that_the_system_names(monkeypatch):
    monkeypatch.setattr(store, "_first_line", lambda path: path)
    machine, boot, namespace = store._place()
    assert (machine, boot) == ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")
    assert " " not in namespace
    monkeypatch.setattr(store, "_first_line", lambda _: None)
    assert store._place() == ("-", "-", namespace)


def test_without_a_name_of_the_namespace_it_is_unknown(monkeypatch):
    def fail(_):
        raise OSError("no such thing here")

    monkeypatch.setattr(Path, "readlink", fail)
    assert store._place()[2] == "-"
    assert len(store._place()) == 3
