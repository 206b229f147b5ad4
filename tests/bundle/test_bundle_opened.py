"""Files that are open already keep what they are, whatever comes to their place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from bundle_writing import array, write
from requirements import require
from tfckpt_trainer.bundle.opened import opened_checkpoint
from tfckpt_trainer.errors import BundleError, DamagedFileError


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    require("Linux")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(temporary))
    saved = tmp_path / "ckpt-1"
    write(saved, {"a": array([1.0, 2.0]), "b": array([3.0], shard=1)}, shards=2)
    return saved


def contents(prefix: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in prefix.parent.glob(f"{prefix.name}.*")}


def replace_by_pipes(prefix: Path) -> None:
    for path in prefix.parent.glob(f"{prefix.name}.*"):
        path.unlink()
        os.mkfifo(path)


def test_what_comes_to_the_place_of_an_open_file_is_not_read(prefix: Path) -> None:
    before, opened_before = contents(prefix), os.listdir("/proc/self/fd")
    assert len(before) == 3
    with opened_checkpoint(prefix) as opened:
        replace_by_pipes(prefix)
        assert contents(opened) == before
    assert os.listdir("/proc/self/fd") == opened_before
    assert os.listdir(tempfile.gettempdir()) == []


def test_a_pipe_is_refused_at_once(prefix: Path) -> None:
    (data, *_) = prefix.parent.glob("*.data-00001*")
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(DamagedFileError, match="not a regular file"), opened_checkpoint(prefix):
        pass
    replace_by_pipes(prefix)
    with pytest.raises((DamagedFileError, BundleError)), opened_checkpoint(prefix):
        pass
    assert os.listdir(tempfile.gettempdir()) == []


def test_without_room_for_temporary_files_they_are_opened_by_name(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(prefix.parent / "missing"))
    with opened_checkpoint(prefix) as opened:
        assert opened == prefix
