"""Waiting for changes of a directory on a local disk."""

from __future__ import annotations

import gc
import os
import resource
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from requirements import require
from tfckpt_trainer.rundir.storage import directory_changes
from tfckpt_trainer.rundir.storage.directory_changes import (
    LOCAL_SECONDS,
    DirectoryChanges,
    DirectoryEvents,
    PolledDirectory,
    watch_directory,
)
from tfckpt_trainer.rundir.storage.files import write_atomic
from waiting import attempts

LIMIT_SECONDS = 60.0


@pytest.fixture(params=[DirectoryEvents, lambda path: PolledDirectory(path, LOCAL_SECONDS)])
def changes(request, tmp_path: Path) -> DirectoryChanges:
    try:
        watched: DirectoryChanges = request.param(tmp_path)
    except OSError:
        require("file events")
        raise
    return watched


def settle(changes: DirectoryChanges) -> None:
    """Waits until what changed before is no longer reported."""
    for _ in attempts("a directory without changes"):
        if not changes.wait(0.1):
            break


def answer_before_the_end(changes: DirectoryChanges) -> bool:
    """Waits for a change; fails if the wait goes on."""
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(changes.wait(10 * LIMIT_SECONDS)), daemon=True
    )
    waiting.start()
    waiting.join(LIMIT_SECONDS)
    assert answers, "it still waits"
    return answers[0]


def test_a_local_directory_is_watched_by_events(tmp_path, monkeypatch):
    """Other processes may have taken all of the system's file events."""
    refused = []

    def watch(directory: Path) -> DirectoryEvents:
        try:
            return DirectoryEvents(directory)
        except OSError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(directory_changes, "DirectoryEvents", watch)
    watched = watch_directory(tmp_path)
    assert isinstance(watched, PolledDirectory if refused else DirectoryEvents)


def test_without_events_it_is_looked_at(tmp_path, monkeypatch):
    def refuse(_directory: Path) -> DirectoryEvents:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(directory_changes, "DirectoryEvents", refuse)
    assert isinstance(watch_directory(tmp_path), PolledDirectory)


def open_watches() -> set[str]:
    """The descriptors of inotify; threads of earlier tests still open and close other files."""
    gc.collect()
    place = "/proc/self/fd"
    watches = set()
    for name in os.listdir(place):
        with suppress(FileNotFoundError):
            if "inotify" in os.readlink(f"{place}/{name}"):
                watches.add(name)
    return watches


def test_a_watch_that_fails_closes_no_file_of_others(tmp_path):
    before = open_watches()
    with pytest.raises(OSError) as raised:  # noqa: PT011
        DirectoryEvents(tmp_path / "missing")
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    del raised
    gc.collect()
    for descriptor in others:
        os.close(descriptor)
    assert open_watches() <= before


def test_a_watch_without_a_file_descriptor_to_spare_leaves_none_open(tmp_path):
    before = open_watches()
    free = os.dup(0)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
    try:
        assert isinstance(watch_directory(tmp_path), PolledDirectory)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert open_watches() <= before


def test_a_new_file_ends_the_wait(changes, tmp_path):
    settle(changes)
    writing = threading.Timer(0.2, write_atomic, (tmp_path / "command.json", b"{}"))
    writing.start()
    assert answer_before_the_end(changes)
    # It may have seen the temporary file.
    assert (tmp_path / "command.json").exists() or changes.wait(LIMIT_SECONDS)
    writing.join()


def test_without_a_change_it_ends_at_its_limit(changes):
    settle(changes)
    assert not changes.wait(0.1)


def test_a_directory_that_was_replaced_is_watched_again(changes, tmp_path):
    settle(changes)
    tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    tmp_path.mkdir()
    changes.wait(0.1)
    settle(changes)
    write_atomic(tmp_path / "command.json", b"{}")
    assert changes.wait(LIMIT_SECONDS)


def test_a_stop_ends_all_waits(changes):
    settle(changes)
    stopping = threading.Timer(0.1, changes.stop)
    stopping.start()
    for _ in range(2):
        answer_before_the_end(changes)
    stopping.join()


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path):
    changes = PolledDirectory(tmp_path / "gone", LOCAL_SECONDS)
    with pytest.raises(FileNotFoundError):
        changes.wait(1.0)
    assert isinstance(watch_directory(tmp_path / "gone"), PolledDirectory)
