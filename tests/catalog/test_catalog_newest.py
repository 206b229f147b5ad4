"""The newest checkpoints without a scan of all, and the listing that is remembered for it.

The remembered listing is only a hint: whatever it holds, what is shown is what the files say.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from checkpoint_directory import NOW, CheckpointDirectory
from msgspec.structs import replace

from file_times import next_tick
from requirements import needs
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.remembered_listing import (
    RememberedListing,
    directory_identity,
    is_settled_directory,
    recall_newest,
    remember_newest,
)
from tfckpt_trainer.catalog.scan.newest import MOST_LINES, scan_newest
from tfckpt_trainer.machine.user_directories import cached_path
from tfckpt_trainer.rundir.storage import files
from tfckpt_trainer.rundir.storage.documents import load, store

COUNT = 3


def newest(made: CheckpointDirectory) -> Sequence[Checkpoint]:
    return scan_newest(made.run, COUNT, NOW)


def names_of(checkpoints: Sequence[Checkpoint]) -> list[str]:
    return [checkpoint.name for checkpoint in checkpoints]


def first_of_all(made: CheckpointDirectory) -> list[Checkpoint]:
    return [replace(checkpoint, is_head=False) for checkpoint in made.scan().values()][:COUNT]


def remember(made: CheckpointDirectory, *names: str) -> None:
    remember_newest(made.root, directory_identity(made.root), names or list(made.scan()))


def remembered_at(root: Path) -> Path:
    place = cached_path("listings", root)
    assert place is not None
    return place / "newest.json"


@pytest.fixture
def many(made: CheckpointDirectory) -> CheckpointDirectory:
    """Nine checkpoints; the steps tell their order, the names sorted do not."""
    for step in range(7, 16):
        made.tensorflow(f"ckpt-{step}", age=3600 - step, listed=step > 12)
    return made


# -- without a remembered listing -------------------------------------------------------------


def test_they_are_those_that_a_scan_of_all_lists_first(many: CheckpointDirectory) -> None:
    assert names_of(newest(many)) == ["ckpt-15", "ckpt-14", "ckpt-13"]
    assert list(newest(many)) == first_of_all(many)


def test_after_a_return_to_an_older_step_the_new_branch_is_the_newest(
    made: CheckpointDirectory,
) -> None:
    for step in range(100, 107):
        made.ours(step, age=3600 - step)
    for step in (102, 103):
        made.ours(step, branch=1, age=1800 - step, parent="ckpt-101")
    assert names_of(newest(made)) == ["ckpt-b1-103", "ckpt-b1-102", "ckpt-106"]
    assert list(newest(made)) == first_of_all(made)
    assert {checkpoint.state for checkpoint in newest(made)} == {CheckpointState.VERIFIED}


def test_checkpoints_of_many_data_files_have_all_of_them(made: CheckpointDirectory) -> None:
    for step in range(9):
        made.tensorflow(f"ckpt-{step}", shards=3)
    assert list(newest(made)) == first_of_all(made)
    (made.root / "ckpt-8.data-00001-of-00003").unlink()
    assert newest(made)[0].state is CheckpointState.INCOMPLETE
    assert list(newest(made)) == first_of_all(made)


def test_one_with_data_files_of_two_saves_is_left_to_the_scan_of_all(
    made: CheckpointDirectory,
) -> None:
    for step in range(9):
        made.tensorflow(f"ckpt-{step}", shards=2)
    (made.root / "ckpt-8.data-00000-of-00001").write_bytes(b"of another save")
    assert names_of(newest(made)) == ["ckpt-7", "ckpt-6"]


def test_pipes_and_directories_are_no_checkpoints(many: CheckpointDirectory) -> None:
    os.mkfifo(many.root / "ckpt-98.index")
    (many.root / "ckpt-99.index").mkdir()
    assert names_of(newest(many)) == ["ckpt-15"]


def test_few_checkpoints_are_left_to_the_scan_of_all(made: CheckpointDirectory) -> None:
    for step in range(2 * COUNT):
        made.tensorflow(f"ckpt-{step}")
    assert newest(made) == []


def test_names_that_do_not_tell_an_order_are_left_to_the_scan_of_all(
    made: CheckpointDirectory,
) -> None:
    for number in range(MOST_LINES + 1):
        made.tensorflow(f"best{number}-1")
    assert newest(made) == []


def test_a_damaged_index_is_as_corrupt_as_in_a_scan_of_all(many: CheckpointDirectory) -> None:
    (many.root / "ckpt-15.index").write_bytes(b"not an index at all" * 10)
    many.touch(many.root / "ckpt-15.index", 10)
    assert newest(many)[0].state is CheckpointState.CORRUPT
    assert list(newest(many)) == first_of_all(many)


def test_a_link_needs_a_scan_of_all(many: CheckpointDirectory) -> None:
    for suffix in (".index", ".data-00000-of-00001"):
        (many.root / f"best-99{suffix}").symlink_to(f"ckpt-7{suffix}")
    assert "best-99" not in names_of(newest(many))


def test_the_head_is_not_determined(many: CheckpointDirectory) -> None:
    many.restored("ckpt-7", 7, 0)
    assert not any(checkpoint.is_head for checkpoint in newest(many))


# -- with one ----------------------------------------------------------------------------------


def test_a_directory_that_did_not_change_is_not_listed(many: CheckpointDirectory) -> None:
    remember(many, "ckpt-9", "ckpt-8", "ckpt-7", "ckpt-10")
    assert names_of(newest(many)) == ["ckpt-9", "ckpt-8", "ckpt-7"]


def test_what_it_names_is_read_as_it_is_now(many: CheckpointDirectory) -> None:
    remember(many)
    index = many.root / "ckpt-15.index"
    # In place: the directory itself does not change.
    with index.open("r+b") as file:
        file.write(b"damaged")
    assert list(newest(many)) == first_of_all(many)
    assert newest(many)[0].state is CheckpointState.CORRUPT


def save_another(root: Path) -> None:
    for path in list(root.glob("ckpt-15.*")):
        shutil.copy2(path, path.with_name(path.name.replace("15", "16")))


def delete_the_newest(root: Path) -> None:
    for path in list(root.glob("ckpt-15.*")):
        path.unlink()


def rename_one(root: Path) -> None:
    for path in list(root.glob("ckpt-15.*")):
        path.rename(path.with_name(path.name.replace("ckpt-15", "best-15")))


def replace_by_another_of_the_same_name(root: Path) -> None:
    aside = root.with_name("aside")
    shutil.copytree(root, aside)
    delete_the_newest(aside)
    root.rename(root.with_name("before"))
    aside.rename(root)


def replace_by_a_copy_with_its_times(root: Path) -> None:
    aside = root.with_name("aside")
    shutil.copytree(root, aside)
    shutil.copystat(root, aside)
    root.rename(root.with_name("before"))
    aside.rename(root)


def restore_from_backup(root: Path) -> None:
    """Restores an older state in place, the time of the directory with it."""
    backup = root.with_name("backup")
    subprocess.run(["rsync", "-a", f"{root}/", f"{backup}/"], check=True)
    seen = os.stat(root)
    save_another(root)
    subprocess.run(["rsync", "-a", "--delete", f"{backup}/", f"{root}/"], check=True)
    os.utime(root, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert os.stat(root).st_ino == seen.st_ino


@pytest.mark.parametrize(
    "change",
    [
        save_another,
        delete_the_newest,
        rename_one,
        replace_by_another_of_the_same_name,
        replace_by_a_copy_with_its_times,
        pytest.param(restore_from_backup, marks=needs("rsync")),
    ],
)
def test_a_changed_directory_is_listed_again(many: CheckpointDirectory, change) -> None:
    remember(many, "ckpt-7")
    assert recall_newest(many.root) == ["ckpt-7"]
    next_tick(many.root.parent)
    change(many.root)
    assert recall_newest(many.root) == ()
    assert list(newest(many)) == first_of_all(many)


def test_a_copied_or_renamed_directory_has_no_remembered_listing(
    many: CheckpointDirectory, tmp_path: Path
) -> None:
    remember(many, "ckpt-7")
    shutil.copytree(many.root, tmp_path / "copy")
    assert recall_newest(tmp_path / "copy") == ()
    many.root.rename(tmp_path / "renamed")
    assert recall_newest(tmp_path / "renamed") == ()
    assert recall_newest(many.root) == ()


def test_a_directory_that_changed_just_now_may_change_unnoticed(many: CheckpointDirectory) -> None:
    identity = directory_identity(many.root)
    changed_at = max(identity[2:]) / 1e9
    assert not is_settled_directory(identity, changed_at + 1)
    assert not is_settled_directory(identity, changed_at - 3600)
    assert is_settled_directory(identity, changed_at + 3)


def test_a_link_to_the_directory_has_the_same_listing(
    many: CheckpointDirectory, tmp_path: Path
) -> None:
    remember(many, "ckpt-7")
    (tmp_path / "link").symlink_to(many.root)
    assert recall_newest(tmp_path / "link") == ["ckpt-7"]


# -- stale and hostile files of the cache ------------------------------------------------------


def test_checkpoints_that_are_gone_are_not_listed(many: CheckpointDirectory) -> None:
    remember(many, "ckpt-99", "ckpt-15", "ckpt-98")
    assert names_of(newest(many)) == ["ckpt-15"]


def test_if_none_is_there_any_more_all_are_scanned(many: CheckpointDirectory) -> None:
    remember(many, "ckpt-99", "ckpt-98")
    assert newest(many) == []


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/b", "", "a\0b", "x" * 300])
def test_a_name_that_leads_elsewhere_spoils_all(many: CheckpointDirectory, name: str) -> None:
    remember(many, "ckpt-7", name)
    assert recall_newest(many.root) == ()
    assert list(newest(many)) == first_of_all(many)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"ckpt-15", b"ckpt-14", 1))


def nest_deeply(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def fill(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


def name_too_many(path: Path) -> None:
    known = load(path, RememberedListing)
    store(path, replace(known, names=[f"ckpt-{n}" for n in range(1_000)]), durable=False)


@pytest.mark.parametrize("spoil", [cut_off, empty, flip_a_bit, nest_deeply, fill, name_too_many])
def test_a_damaged_file_is_ignored_and_replaced(many: CheckpointDirectory, spoil) -> None:
    remember(many)
    spoil(remembered_at(many.root))
    assert recall_newest(many.root) == ()
    assert list(newest(many)) == first_of_all(many)
    remember(many)
    assert recall_newest(many.root)[0] == "ckpt-15"


def test_what_is_no_file_is_left_alone(many: CheckpointDirectory, tmp_path: Path) -> None:
    path = remembered_at(many.root)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert recall_newest(many.root) == ()
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path.symlink_to(secret)
    assert recall_newest(many.root) == ()
    remember(many)
    assert secret.read_text() == "secret"


def test_the_file_of_a_newer_release_is_ignored_and_kept(many: CheckpointDirectory) -> None:
    remember(many)
    path = remembered_at(many.root)
    later = b'{"schema":99,"crc32":"00000000","written_by":"99.0"}'
    path.write_bytes(later)
    assert recall_newest(many.root) == ()
    remember(many)
    assert path.read_bytes() == later
    assert list(newest(many)) == first_of_all(many)


def test_a_cache_that_cannot_be_written_changes_nothing(
    many: CheckpointDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remember(many)
    assert recall_newest(many.root) == ()
    assert list(newest(many)) == first_of_all(many)


def test_without_a_home_nothing_is_remembered(
    many: CheckpointDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tfckpt_trainer.catalog.directory.remembered_listing.cached_path", lambda *_: None
    )
    remember(many)
    assert recall_newest(many.root) == ()


def test_on_a_full_disk_the_earlier_listing_stays(
    many: CheckpointDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(many, "ckpt-7")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", full)
        remember(many, "ckpt-8")
    assert recall_newest(many.root) == ["ckpt-7"]
    assert os.listdir(remembered_at(many.root).parent) == ["newest.json"]


def test_two_apps_remember_at_once(many: CheckpointDirectory) -> None:
    choices = [["ckpt-7"] * 50, ["ckpt-8"] * 200]
    threads = [
        threading.Thread(target=lambda c=choice: [remember(many, *c) for _ in range(30)])
        for choice in choices
    ]
    remember(many, *choices[0])
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert recall_newest(many.root) in choices
    assert recall_newest(many.root) in choices
