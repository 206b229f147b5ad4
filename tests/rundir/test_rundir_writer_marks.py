"""What a killed command left is removed by the next one, and nothing of others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from killed_writers import mark_of_a_killed_process
from tfckpt_trainer.rundir.heartbeats.writer_marks import (
    own_mark,
    remove_leftovers,
    temporary_directory,
    temporary_path,
)
from tfckpt_trainer.rundir.paths import WRITER


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_directory_of_others_with_such_a_name_stays(tmp_path: Path, is_marked: bool) -> None:
    mark = mark_of_a_killed_process()
    place = tmp_path / f".thesis.{mark}.tmp"
    place.mkdir()
    (place / "chapter.txt").touch()
    if is_marked:
        (place / f"{WRITER}{mark}").touch()
    file = tmp_path / f".values.npz.{mark}.tmp"
    file.touch()
    # It was killed before it wrote the mark.
    empty = tmp_path / f".empty.{mark}.tmp"
    empty.mkdir()
    remove_leftovers(tmp_path)
    assert place.exists() != is_marked
    assert not (file.exists() or empty.exists())


@pytest.mark.parametrize("off", [0.0, 3600.0, -3600.0])
def test_what_a_living_process_writes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """Also if somebody sets the clock meanwhile."""
    path, true_time = temporary_path(tmp_path / "export"), time.time
    with temporary_directory(tmp_path / "export") as made:
        assert made == path
        monkeypatch.setattr(time, "time", lambda: true_time() + off)
        remove_leftovers(tmp_path)
        assert [entry.name for entry in made.iterdir()] == [f"{WRITER}{own_mark()}"]
    assert list(tmp_path.iterdir()) == []
