"""A file is replaced whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import mlxfill
from full_disk import full_after


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    asked: dict[str, int]
    for asked in ({}, {"mode": 0o644}):
        path = tmp_path / "new"
        with mlxfill.replacing(path, **asked) as file:
            file.write(b"content")
            assert not path.exists()
        assert path.read_bytes() == b"content"
        assert mode(path) == asked.get("mode", 0o600)
        path.unlink()


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("old")
    path.chmod(0o640)
    with mlxfill.replacing(path) as file:
        file.write(b"0000")
        file.seek(1)
        file.write(b"1")
        file.seek(0)
        assert file.read() == b"0100"
        assert path.read_text() == "old"
    assert (path.read_text(), mode(path)) == ("0100", 0o640)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_the_old_file_alone(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "there"
    path.write_text("old")
    with pytest.raises(error), mlxfill.replacing(path) as file:  # noqa: PT012 - the block raises
        file.write(b"new")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("old")
    with pytest.raises(OSError, match="File too large"), full_after(8):  # noqa: SIM117
        with mlxfill.replacing(path) as file:
            file.write(bytes(9))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.mkdir()
    with pytest.raises(IsADirectoryError), mlxfill.replacing(path):
        pass
    assert list(tmp_path.iterdir()) == [path]
