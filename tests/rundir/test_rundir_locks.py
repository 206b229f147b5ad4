"""Locks of a run directory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.storage import locks
from tfckpt_trainer.rundir.storage.locks import is_locked, locked, take_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


def held(path: Path, seconds: float = 0.0) -> int:
    descriptor = take_lock(path, seconds)
    assert descriptor is not None
    return descriptor


def test_a_lock_is_held_until_its_file_is_closed(path: Path) -> None:
    assert not is_locked(path)
    assert not path.exists()
    descriptor = held(path)
    assert is_locked(path)
    assert take_lock(path) is None
    with pytest.raises(RefusedError, match="Another x has been"), locked(path, 0.1, "x"):
        pass
    os.close(descriptor)
    assert not is_locked(path)
    with locked(path, 0, "change of x"):
        assert is_locked(path)
    assert not is_locked(path)


def test_who_waits_gets_it_from_who_leaves(path: Path) -> None:
    descriptor, waiting, got = held(path), threading.Event(), []

    def wait() -> None:
        waiting.set()
        got.append(held(path, 60))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    os.close(descriptor)
    thread.join()
    assert is_locked(path)
    os.close(got[0])


def test_a_file_that_was_replaced_while_somebody_waited_is_not_taken(
    path: Path, monkeypatch
) -> None:
    """Two could hold the lock then, one of each file."""
    opened = locks.open_lock
    replaced: list[int] = []

    def open_and_replace(place: Path) -> int:
        descriptor = opened(place)
        if not replaced:
            place.unlink()
            replaced.append(opened(place))
        return descriptor

    monkeypatch.setattr(locks, "open_lock", open_and_replace)
    descriptor = held(path, 60)
    assert os.fstat(descriptor).st_ino == path.stat().st_ino == os.fstat(replaced[0]).st_ino
    for one in (descriptor, *replaced):
        os.close(one)
