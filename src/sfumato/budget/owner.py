# SPDX-License-Identifier: Apache-2.0
"""Which process reserved a debit, and whether it can still answer.

A debit whose process died is burnt. Privacy does not depend on this module: a burnt debit can no
longer be answered, so burning too early wastes budget and burning too late makes a retry wait.
It therefore says "gone" only when that is certain: same machine, and another boot, or the same
boot and process namespace and no process with that number and start time. Where a system does
not tell (no ``/proc``), a process number that is in use counts as alive.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__all__ = ["is_gone", "this_process"]

_UNKNOWN = "-"


@cache
def this_process() -> str:
    """Return "machine boot namespace pid start" of this process."""
    pid = os.getpid()
    return " ".join((*_place(), str(pid), _start_time(pid) or _UNKNOWN))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.cache_clear)


def is_gone(owner: str) -> bool:
    """Whether the process named by ``owner`` has certainly ended."""
    parts = owner.split(" ")
    if len(parts) != 5 or not parts[3].isdecimal():
        return False
    machine, boot, namespace, number, start = parts
    here_machine, here_boot, here_namespace = _place()
    if machine != here_machine:
        return False
    if boot != here_boot:
        return _UNKNOWN not in (machine, boot, here_boot)
    if namespace != here_namespace:
        return False
    pid = int(number)
    if start == _UNKNOWN or not Path("/proc/self/stat").exists():
        return not _number_in_use(pid)
    return _start_time(pid) != start


def _place() -> tuple[str, str, str]:
    machine = _first_line("/etc/machine-id") or _UNKNOWN
    boot = _first_line("/proc/sys/kernel/random/boot_id") or _UNKNOWN
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).replace(" ", "")
    except OSError:
        namespace = _UNKNOWN
    return machine, boot, namespace


def _first_line(path: str) -> str | None:
    try:
        words = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError):
        return None
    return words[0] if words else None


def _start_time(pid: int) -> str | None:
    """Clock ticks from boot to the start of the process; None if it has ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may itself hold brackets and spaces: count from the last one.
    fields = line.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else start


def _number_in_use(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
