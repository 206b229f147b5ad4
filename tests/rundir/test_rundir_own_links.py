"""Paths that a person names: whose links are followed, with and without `O_PATH`."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from accounts import BOB
from requirements import needs
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage import own_links
from tfckpt_trainer.rundir.storage.files import (
    create_file,
    delete_file,
    make_directory,
    rename,
    write_atomic,
)
from tfckpt_trainer.rundir.storage.own_links import (
    LinkOfOthersError,
    held_directory,
    open_named_file,
    resolve_named,
)
from tfckpt_trainer.rundir.storage.parent_directory import (
    LinkedDirectoryError,
    OtherDirectoryError,
    stay_in,
    without_links,
)


@pytest.fixture(params=["held", "by-name"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "by-name":
        # As on macOS.
        monkeypatch.setattr(own_links, "_PATH_ONLY", 0)
        monkeypatch.setattr(own_links, "_DIRECTORY", os.O_DIRECTORY | os.O_NOFOLLOW)
        monkeypatch.setattr(own_links, "path_of_open", lambda descriptor: None)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("content")
    return tmp_path


def link(path: Path, target: str | Path, owner: int = 0) -> None:
    path.symlink_to(target)
    os.chown(path, owner, -1, follow_symlinks=False)


def read(path: Path) -> str:
    with open_named_file(path) as file:
        return file.read().decode()


@pytest.mark.parametrize(
    "target", ["a/b/file", "./a/../a//b/file", "{root}/a/b/file", "{root}/a/b/../b/./file"]
)
def test_own_links_lead_anywhere(root: Path, target: str) -> None:
    link(root / "link", target.format(root=root))
    link(root / "a" / "next", "../link")
    assert read(root / "a" / "next") == "content"


def test_links_to_directories_are_followed_as_by_the_system(root: Path) -> None:
    link(root / "up", "a/b")
    link(root / "top", root)
    for path in ("up/file", "up/../b/file", "top/top/up/file", "a/./b/file"):
        assert read(root / path) == "content"
        assert resolve_named(root / path) == Path(os.path.realpath(root / path))


@needs("root")
@pytest.mark.parametrize("target", ["a/b", "./a", "..", "{root}/a", "/"])
def test_links_of_others_lead_out_of_their_directory_for_nobody(root: Path, target: str) -> None:
    named = target.format(root=root)
    link(root / "link", named, BOB)
    for act in (resolve_named, read, lambda path: held_directory(path).__enter__()):
        with pytest.raises(LinkOfOthersError, match=f"symbolic link of user {BOB}") as told:
            act(root / "link" / "x")
        assert told.value.filename == str(root / "link")
        assert told.value.errno == errno.ELOOP
        assert f"`{os.path.normpath(root / named / 'x')}`" in str(told.value)


@needs("root")
def test_links_of_others_lead_to_names_beside_them(root: Path) -> None:
    link(root / "one", "two", BOB)
    link(root / "two", "a", BOB)
    assert read(root / "one" / "b" / "file") == "content"
    link(root / "a" / "b" / "other", "file", BOB)
    assert read(root / "one" / "b" / "other") == "content"


@needs("root")
def test_links_of_others_lead_to_what_is_theirs(root: Path) -> None:
    for place in (root / "a", root / "a" / "b" / "file"):
        os.chown(place, BOB, -1)
    link(root / "link", "a/b/file", BOB)
    link(root / "top", root / "a", BOB)
    assert read(root / "link") == "content"
    assert read(root / "top" / "b" / "file") == "content"
    assert resolve_named(root / "top") == root / "a"
    for path in ("top/b", "top/b/new", "top/../a/b"):
        with pytest.raises(LinkOfOthersError):
            resolve_named(root / path)


@needs("root")
def test_a_disk_that_shows_own_files_as_those_of_another_user(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_links, "is_own_there", lambda directory, owner, user: owner == BOB)
    link(root / "link", "a/b/file", BOB)
    assert read(root / "link") == "content"


def test_what_is_missing_is_kept(root: Path) -> None:
    link(root / "dead", "a/new/../new")
    assert resolve_named(root / "dead" / "x") == root / "a" / "new" / "x"
    assert resolve_named(root / "a" / "b" / "file" / "x") == root / "a" / "b" / "file" / "x"
    with pytest.raises(FileNotFoundError) as told:
        read(root / "dead")
    assert told.value.filename == str(root / "a" / "new")


def test_a_loop_ends(root: Path) -> None:
    link(root / "one", "two")
    link(root / "two", "one")
    for act in (resolve_named, read):
        with pytest.raises(OSError, match="symbolic links") as told:
            act(root / "one")
        assert told.value.errno == errno.ELOOP


def test_no_pipe_and_no_directory_is_a_file(root: Path) -> None:
    os.mkfifo(root / "pipe")
    link(root / "link", "pipe")
    for name in ("pipe", "link", "a"):
        with pytest.raises(DamagedFileError, match="not a regular file"):
            read(root / name)


def test_a_relative_path_begins_in_the_current_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "a")
    assert resolve_named("b/..") == resolve_named(".") == root / "a"
    assert read(Path("../a/b/file")) == "content"


def test_an_error_in_a_held_directory_has_the_name_that_was_given(root: Path) -> None:
    link(root / "link", "a")
    with pytest.raises(FileNotFoundError) as told, held_directory(root / "link") as held:
        (held.opened / "missing" / "x").read_text()
    assert told.value.filename == str(root / "link" / "missing" / "x")
    assert held.named == root / "a"


def test_no_descriptor_is_left_open(root: Path) -> None:
    link(root / "link", "a/b/file")
    link(root / "loop", "loop")
    (root / "pipe").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    read(root / "link")
    resolve_named(root / "link")
    with held_directory(root / "a"):
        pass
    for name in ("loop", "missing/x", "pipe"):
        with pytest.raises((OSError, DamagedFileError)):
            read(root / name)
    assert len(os.listdir("/proc/self/fd")) == before


Act = Callable[[Path], object]

CHANGES: dict[str, Act] = {
    "write_atomic": lambda path: write_atomic(path / "new", b"new"),
    "create_file": lambda path: create_file(path / "new").close(),
    "make_directory": lambda path: make_directory(path / "sub" / "new"),
    "rename": lambda path: rename(path / "file", path / "new"),
    "delete_file": lambda path: delete_file(path / "file"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("directory", ["a", "a/b"])
def test_nothing_is_changed_through_a_link_that_comes_later(
    root: Path, name: str, directory: str
) -> None:
    with without_links(root / "a" / "b"):
        (root / directory).rename(root / "moved")
        (root / directory).symlink_to(root / "moved")
        before = sorted(root.rglob("*"))
        with pytest.raises(LinkedDirectoryError, match="symbolic link"):
            CHANGES[name](root / "a" / "b")
        assert sorted(root.rglob("*")) == before
    CHANGES[name](root / "a" / "b")
    assert sorted(root.rglob("*")) != before


def test_what_is_missing_of_a_directory_is_made_without_links(tmp_path: Path) -> None:
    place = tmp_path / "new" / "run"
    with without_links(place):
        make_directory(place)
        place.rename(tmp_path / "moved")
        place.symlink_to(tmp_path / "moved")
        with pytest.raises(LinkedDirectoryError):
            write_atomic(place / "file", b"new")
    assert list((tmp_path / "moved").iterdir()) == []


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("by_link", [True, False])
def test_nothing_is_changed_in_another_directory_than_the_one_to_stay_in(
    root: Path, name: str, by_link: bool
) -> None:
    other = root / "other"
    other.mkdir()
    (other / "file").write_text("of others")
    with stay_in(root / "a", lambda _: ""):
        (root / "a").rename(root / "moved")
        (root / "a").symlink_to(other) if by_link else other.rename(root / "a")
        before = sorted(root.rglob("*"))
        refused = pytest.raises(OtherDirectoryError, match="in place of that of the run")
        with nullcontext() if name == "delete_file" else refused:
            CHANGES[name](root / "a")
        assert sorted(root.rglob("*")) == before
    CHANGES[name](root / "a")
    assert sorted(root.rglob("*")) != before


def test_a_new_directory_in_place_of_one_to_stay_in_is_used_if_it_is_empty(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    opened = len(os.listdir("/proc/self/fd"))
    with stay_in(place, lambda _: ""), stay_in(place, lambda _: ""):
        place.rmdir()
        with pytest.raises(FileNotFoundError):
            write_atomic(place / "file", b"new")
        make_directory(place / "sub")
        write_atomic(place / "file", b"new")
        write_atomic(place / "sub" / "file", b"new")
        place.rename(tmp_path / "moved")
        (tmp_path / "moved").rename(place)
        delete_file(place / "file")
    assert len(os.listdir("/proc/self/fd")) == opened
    assert list(place.iterdir()) == [place / "sub"]


def test_a_new_directory_is_used_if_another_process_of_the_run_made_it(tmp_path: Path) -> None:
    place, name = tmp_path / "run", "run.json"

    def content(directory: int) -> str:
        with suppress(FileNotFoundError):
            file = os.open(name, os.O_RDONLY, dir_fd=directory)
            text = os.read(file, 100).decode()
            os.close(file)
            return text
        return ""

    def make(root: Path, text: str) -> None:
        root.mkdir()
        (root / name).write_text(text)

    place.mkdir()
    with stay_in(place, content):
        # It is written later, as at the first start of a run.
        write_atomic(place / name, b"one")
        write_atomic(place / "file", b"new")
        place.rename(tmp_path / "moved")
        make(tmp_path / "other", "two")
        (tmp_path / "other").rename(place)
        with pytest.raises(OtherDirectoryError):
            write_atomic(place / "file", b"new")
        shutil.rmtree(place)
        place.symlink_to(tmp_path / "moved")
        write_atomic(place / "file", b"the same, whatever leads to it")
        place.unlink()
        # A copy of the run is not this run.
        shutil.copytree(tmp_path / "moved", tmp_path / "copy")
        place.symlink_to(tmp_path / "copy")
        with pytest.raises(OtherDirectoryError):
            write_atomic(place / "file", b"new")
        place.unlink()
        make(place, "one")
        write_atomic(place / "file", b"new")
    assert sorted(path.name for path in place.iterdir()) == ["file", name]


@needs("root")
@pytest.mark.parametrize("is_empty", [True, False])
def test_no_directory_of_another_user_is_taken_for_one_made_anew(
    tmp_path: Path, is_empty: bool
) -> None:
    place = tmp_path / "run"
    place.mkdir()
    with stay_in(place, lambda _: "the same"):
        write_atomic(place / "file", b"new")
        place.rename(tmp_path / "moved")
        place.mkdir()
        if not is_empty:
            (place / "file").write_text("of Bob")
        os.chown(place, BOB, -1)
        with pytest.raises(OtherDirectoryError):
            write_atomic(place / "file", b"new")
        os.chown(place, 0, -1)
        write_atomic(place / "file", b"new")
