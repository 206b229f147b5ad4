"""No function of the storage follows a symbolic link at or below `.tfckpt`."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tfckpt_trainer.errors import DamagedFileError, describe_error
from tfckpt_trainer.rundir.storage import files
from tfckpt_trainer.rundir.storage.disk import LocalDisk
from tfckpt_trainer.rundir.storage.parent_directory import open_below

Act = Callable[[Path], object]
"""Gets a file in `.tfckpt/records`, which exists."""

READS: dict[str, Act] = {
    "facts_of": files.facts_of,
    "open_plain": lambda path: files.open_plain(path).close(),
    "open_descriptor": lambda path: os.close(files.open_descriptor(path)[0]),
    "read_bounded": files.read_bounded,
    "read_timed": files.read_timed,
    "file_time": files.file_time,
    "open_directory": lambda path: os.close(files.open_directory(path.parent)),
    "sync_directory": lambda path: files.sync_directory(path.parent),
    "sync_file": files.sync_file,
    "share_file": files.share_file,
    "share_directory": lambda path: files.share_directory(path.with_name("directory")),
}

WRITES: dict[str, Act] = {
    "write_atomic": lambda path: files.write_atomic(path, b"new"),
    "overwrite": lambda path: files.overwrite(path, b"new"),
    "append_line": lambda path: files.append_line(path, b"new"),
    "open_shared": lambda path: os.close(files.open_shared(path, os.O_WRONLY | os.O_TRUNC)),
    "open_or_move_aside": lambda path: os.close(
        files.open_or_move_aside(path, os.O_WRONLY | os.O_TRUNC)[0]
    ),
    "open_lock": lambda path: os.close(files.open_lock(path.with_name("lock"))),
    "move": lambda path: files.move(path, path.with_name("moved")),
    "rename": lambda path: files.rename(path, path.with_name("moved")),
    "move_aside": files.move_aside,
    "delete_file": files.delete_file,
    # It asks the disk, and takes a refusal for an answer.
    "delete_if_empty": lambda path: LocalDisk().remove_directory(path.with_name("directory")),
    "delete_if_without_files": lambda path: LocalDisk().remove_directories(
        path.with_name("directory")
    ),
    "delete_tree": lambda path: files.delete_tree(path.parent / "directory"),
    "create_file": lambda path: files.create_file(path.with_name("new")).close(),
    "create_directory": lambda path: files.create_directory(path.with_name("new")),
    "make_directory": lambda path: files.make_directory(path.with_name("new")),
    "provide_directory": lambda path: files.provide_directory(path.with_name("new")),
}

WITHOUT_A_PATH = {"path_of_open", "start_flush", "read_to_end", "share"}
LISTS = {"list_directory"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    records = tmp_path / "run" / ".tfckpt" / "records"
    (records / "directory").mkdir(parents=True)
    (records / "file").write_text("content")
    return tmp_path / "run"


def replace_by_link(root: Path, directory: str) -> Path:
    elsewhere = root.parent / "elsewhere"
    shutil.move(root / directory, elsewhere)
    (root / directory).symlink_to(elsewhere)
    return elsewhere


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b""
        for path in root.rglob("*")
    }


def test_all_functions_of_the_storage_are_tried() -> None:
    defined = {
        name
        for name, function in inspect.getmembers(files, inspect.isfunction)
        if function.__module__ == files.__name__ and not name.startswith("_")
    }
    assert defined - WITHOUT_A_PATH - LISTS == {*READS, *WRITES}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("directory", [".tfckpt", ".tfckpt/records"])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_no_link_is_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, directory: str, at_once: bool
) -> None:
    elsewhere = replace_by_link(root, directory)
    if not at_once:
        # A system without `openat2`.
        monkeypatch.setattr("tfckpt_trainer.rundir.storage.parent_directory._syscall", lambda: None)
    before = tree(elsewhere)
    with pytest.raises((OSError, DamagedFileError)) as raised:
        (READS | WRITES)[name](root / ".tfckpt" / "records" / "file")
    assert f"{root / directory}" in str(raised.value)
    assert "symbolic link; expected a directory. Remove the link." in str(raised.value)
    assert tree(elsewhere) == before


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_a_run_directory_behind_links_works(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, at_once: bool
) -> None:
    (root.parent / "scratch").symlink_to(root.parent)
    (root.parent / "linked").symlink_to("scratch/run")
    if not at_once:
        monkeypatch.setattr("tfckpt_trainer.rundir.storage.parent_directory._syscall", lambda: None)
    before = tree(root)
    (READS | WRITES)[name](root.parent / "linked" / ".tfckpt" / "records" / "file")
    is_write = name in WRITES and name != "sync_file"
    assert (tree(root) != before) == is_write


def test_no_time_is_set_behind_a_link(root: Path) -> None:
    place = root / ".tfckpt" / "records" / "file"
    LocalDisk().set_time(place, 1.0)
    assert place.stat().st_mtime == 1.0
    elsewhere = replace_by_link(root, ".tfckpt/records")
    with pytest.raises(OSError, match="symbolic link"):
        LocalDisk().set_time(place, 2.0)
    assert (elsewhere / "file").stat().st_mtime == 1.0


def test_what_is_behind_a_link_is_not_listed(root: Path) -> None:
    assert len(files.list_directory(root / ".tfckpt" / "records")) == 2
    replace_by_link(root, ".tfckpt/records")
    assert files.list_directory(root / ".tfckpt" / "records") == []


def test_an_error_names_the_whole_path(root: Path) -> None:
    missing = root / ".tfckpt" / "records" / "missing"
    for act in (files.read_bounded, files.open_plain, lambda path: open_below(str(path), 0)):
        with pytest.raises(FileNotFoundError) as raised:
            act(missing)
        assert raised.value.filename == str(missing)
    with pytest.raises(FileNotFoundError) as raised:
        files.move(missing, missing.with_name("moved"))
    assert raised.value.filename == str(missing)


def test_a_name_with_a_null_character_is_no_other_file(root: Path) -> None:
    with pytest.raises(ValueError, match="null"):
        files.read_bounded(f"{root}/.tfckpt/records/file\0.json")


def test_a_relative_path_is_one_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert files.read_bounded(".tfckpt/records/file") == b"content"
    replace_by_link(root, ".tfckpt")
    with pytest.raises(DamagedFileError, match="symbolic link"):
        files.read_bounded(".tfckpt/records/file")
    with pytest.raises(OSError, match="symbolic link"):
        files.write_atomic(Path(".tfckpt/records/file"), b"new")


@pytest.mark.parametrize("name", ["append_line", "open_shared"])
def test_a_link_in_the_place_of_a_lock_or_log_is_named_with_what_to_do(
    root: Path, name: str
) -> None:
    lock = root / ".tfckpt" / "records" / "trash.lock"
    lock.symlink_to(root / "elsewhere")
    with pytest.raises(OSError, match="symbolic link") as told:
        WRITES[name](lock)
    assert describe_error(told.value) == (
        f"{lock}: it is a symbolic link; expected a regular file. Move the link away"
    )
    assert not (root / "elsewhere").exists()
