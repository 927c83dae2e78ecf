# SPDX-License-Identifier: Apache-2.0
"""A canary: one cell holds exactly 104,729 records, and that number must not be seen anywhere.

The noise is far larger than the count, so that the number cannot come out by honest chance; words
come from a seeded source, so that a run that passes passes again.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import sfumato as sf
from sfumato.cli.main import main
from tests.shared.words import SeededWords

CANARY = 104_729

SPEC = """\
[data]
source = "records.parquet"

[domain.city]
kind = "category"
values = ["Uz", "Oz"]

[domain.age]
kind = "integer"
min = 0
max = 3

[[workload]]
marginals = 2

[[workload]]
prefix = "age"

[[workload]]
sql = "SELECT COUNT(*) FROM data WHERE city = 'Uz'"

[budget]
epsilon = 1e-7

[ledger]
path = "canary.ledger"
create = true
epsilon = 1e-6
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table and the spec; temporary files and the working directory are inside, too."""
    ages = pa.repeat(pa.scalar(2, pa.int64()), CANARY)
    cities = pa.repeat(pa.scalar("Uz"), CANARY)
    data = tmp_path / "data"
    data.mkdir()
    parquet.write_table(pa.table({"city": cities, "age": ages}), data / "records.parquet")
    (data / "release.toml").write_text(SPEC)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path / "tmp")
    words = SeededWords("canary")
    monkeypatch.setattr("sfumato.random.system_words", lambda: words)
    return tmp_path


def _release(folder: Path, *more: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["release", str(folder / "data" / "release.toml"), *more, "--yes"])
    assert isinstance(left.value.code, int)
    return left.value.code


SHORT = struct.pack("<i", CANARY)


def _is_seen(raw: bytes) -> bool:
    """As text, with or without a separator, or as an integer or float of 8 bytes."""
    texts = (b"104729", b"104,729", b"104_729", b"104 729")
    binary = (struct.pack("<q", CANARY), struct.pack(">q", CANARY), struct.pack("<d", CANARY))
    return any(needle in raw for needle in (*texts, *binary))


def _seen(folder: Path, *texts: str) -> set[str]:
    """Where the canary sings: files (the table itself apart) and texts."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "records.parquet"]
    found = {p.name for p in files if _is_seen(p.read_bytes())}
    for path in (p for p in files if p.suffix == ".parquet"):
        numbers = pd.read_parquet(path).select_dtypes("number")
        found |= {path.name} if bool((numbers == CANARY).any(axis=None)) else set()
    for path in (p for p in files if p.suffix == ".zip"):
        with ZipFile(path) as packed:  # arrays in it have the fewest bytes that hold their numbers
            parts = [packed.read(name) for name in packed.namelist()]
        found |= {path.name} if any(_is_seen(raw) or SHORT in raw for raw in parts) else set()
    return found | {text for text in texts if _is_seen(text.encode())}


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("exactly 104,729 records")
    (tmp_path / "b.bin").write_bytes(b"x" + struct.pack("<q", CANARY) + b"y")
    pd.DataFrame({"value": [1.0, CANARY]}).to_parquet(tmp_path / "c.parquet")
    with ZipFile(tmp_path / "d.zip", "w", ZIP_DEFLATED) as packed:
        packed.writestr("numbers.npy", 100 * SHORT)
    found = {"a.txt", "b.bin", "c.parquet", "d.zip", "104729"}
    assert _seen(tmp_path, "104729") == found


def test_a_full_release_never_shows_an_exact_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _release(folder, "--synthetic", "20", "--notebook") == 0
    assert _release(folder, "--json") == 0  # the stored answer
    for command in ("show", "verify"):
        with pytest.raises(SystemExit):
            main(["ledger", command, str(folder / "data" / "canary.ledger")])
    caught = capsys.readouterr()
    written = {p.name for p in (folder / "data" / "release-out").iterdir()}
    # With the answers of the SELECT in its own shape, what the synthetic records are worth, and
    # what the release is read back from.
    assert len(written) == 9
    assert _seen(folder, caught.out, caught.err) == set()


def _raise(kind: type[Exception], text: Callable[[object], str]) -> Callable[..., object]:
    def failing(exact: object, *_: object) -> object:
        raise kind(text(exact))

    return failing


@pytest.mark.parametrize("kind", [ValueError, MemoryError, OSError, AssertionError])
def test_failures_between_counting_and_noise_never_show_an_exact_count(
    kind: type[Exception],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error text itself holds the exact counts, as an engine's might."""
    monkeypatch.setattr("sfumato.vault.mechanisms.measure.add_noise", _raise(kind, repr))
    monkeypatch.setenv("SFUMATO_FRAMES", "1")
    assert _release(folder) in (1, 2)
    caught = capsys.readouterr()
    assert not (folder / "data" / "release-out").exists()
    assert _seen(folder, caught.out, caught.err) == set()


def test_a_traceback_of_python_never_shows_an_exact_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sfumato.vault.mechanisms.measure.add_noise", _raise(RuntimeError, lambda _: "broken")
    )
    domain = sf.Domain({"age": 4})
    plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1))
    with pytest.raises(RuntimeError, match="broken") as caught:
        plan.release(folder / "data" / "records.parquet")
    assert not _is_seen("".join(traceback.format_exception(caught.value)).encode())


def test_what_the_vault_holds_has_no_repr(folder: Path) -> None:
    from sfumato.vault.mechanisms.measure import count
    from sfumato.vault.tables import open_table

    domain = sf.Domain({"age": 4})
    plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1))
    table = open_table(folder / "data" / "records.parquet")
    exact = count(table, domain, plan.strategy.blocks, "add-remove")
    assert any(CANARY in values for values in exact.values.reveal())
    for shown in (repr(exact), str(exact), f"{exact}", repr(table), repr(exact.values)):
        assert not _is_seen(shown.encode())
