# SPDX-License-Identifier: Apache-2.0
"""A built wheel, installed outside of the repository, does what the README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _ran(*command: str | Path, cwd: Path) -> str:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; what it needs comes from this one.

    Entries of ``.pth`` files are no site folders, so the link of this environment to the source
    tree is not followed from there.
    """
    folder = tmp_path_factory.mktemp("wheel")
    _ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("sfumato-*.whl")
    venv.create(folder / "env", with_pip=False)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    at = _ran(
        programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))",
        cwd=folder,
    ).strip()  # fmt: skip
    needs = [place for place in sys.path if place.endswith("site-packages")]
    Path(at, "needs.pth").write_text("\n".join(needs) + "\n")
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "--quiet")
    _ran(*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    return programs


def test_the_package_is_the_wheel_and_whole(commands: Path, tmp_path: Path) -> None:
    code = "import sfumato, sfumato_web, sfumato_audit; print(sfumato.__file__)"
    assert str(commands.parent) in _ran(commands / "python", "-c", code, cwd=tmp_path)
    tree = {
        p.relative_to(ROOT / "src").as_posix()
        for p in (ROOT / "src").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    site = Path(_ran(commands / "python", "-c", code, cwd=tmp_path).strip()).parents[1]
    assert sorted(name for name in tree if not (site / name).is_file()) == []


def test_the_first_example_of_the_readme_runs(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(_blocks("python")[0])
    shown = _ran(commands / "python", "example.py", cwd=tmp_path)
    assert re.match(r"180 queries by \S+: typical error \d+\.\d counts\n", shown)
    assert "Preschool" in shown
    assert (tmp_path / "adult.ledger").exists()
    saved = {p.name for p in (tmp_path / "adult-release").iterdir()}
    assert saved == {"answers.parquet", "report.html", "provenance.json", "release.zip"}


def test_the_commands_of_the_readme_run(commands: Path, tmp_path: Path) -> None:
    """Draft, plan, release and ledger, in a folder that holds a table and nothing else."""
    sfumato = commands / "sfumato"
    (spec,) = (text for text in _blocks("toml") if "[ledger]" in text)
    small = spec.replace('"people.parquet"', '"demo:adult"').replace(
        '"schema.toml"', '"demo:adult"'
    )
    small = small.replace("marginals = 2 ", "marginals = 1 ")
    (tmp_path / "release.toml").write_text(small)
    shown = [line for block in _blocks("console") for line in block.splitlines()]
    for command in ("plan release.toml", "release release.toml", "ledger show people.ledger"):
        assert any(line.startswith(f"$ sfumato {command}") for line in shown)
        sure = ["--yes"] if command.startswith("release") else []  # there is no terminal here
        _ran(sfumato, *command.split(), *sure, cwd=tmp_path)
    _ran(sfumato, "draft", "demo:adult", "--out", "schema.toml", cwd=tmp_path)
    assert {"serve", "token", "audit"} <= set(_ran(sfumato, "--help", cwd=tmp_path).split())
