# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.app.files import check_folder, filled_folder, write_text
from sfumato.errors import SfumatoError


def test_files_appear_together_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    with filled_folder(target) as staging:
        (staging / "a").write_text("1")
        (staging / "b").write_text("2")
        assert not target.exists()
    assert {p.name for p in target.iterdir()} == {"a", "b"}
    assert {p.name for p in tmp_path.iterdir()} == {"new"}


def test_a_failure_inside_the_block_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> None:
        with filled_folder(tmp_path / "out") as staging:
            (staging / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match="No space left"), filled_folder(tmp_path / "out"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["x.toml"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        with pytest.raises(SfumatoError, match="is a file"):
            check_folder(folder)


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
