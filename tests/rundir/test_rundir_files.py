from __future__ import annotations

import errno
import fcntl
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.paths import (
    RunDirectory,
    StepName,
    checkpoint_name,
    parse_checkpoint_name,
    parse_numbered_name,
)
from tfckpt_trainer.rundir.storage.files import (
    IrregularFileError,
    NotFlushedError,
    append_line,
    make_directory,
    move,
    open_lock,
    read_bounded,
    sync_file,
    write_atomic,
)


def test_write_atomic_replaces_the_whole_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "status.json"
    write_atomic(target, b"a much longer first version")
    write_atomic(target, b"second")
    assert target.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["status.json"]


def test_an_error_names_the_file_that_was_to_be_written(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        write_atomic(tmp_path / "missing" / "report.html", b"data")
    assert raised.value.filename == str(tmp_path / "missing" / "report.html")


def test_a_failed_write_keeps_the_old_file(tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    with pytest.raises(OSError, match="there"):
        write_atomic(target, b"data")
    assert os.listdir(tmp_path) == ["there"]


def test_a_directory_hides_no_file_of_the_library(tmp_path):
    target = RunDirectory(tmp_path).worker_status(0)
    (target / "precious").mkdir(parents=True)
    write_atomic(target, b"data")
    assert target.read_bytes() == b"data"
    (aside,) = target.parent.glob("*.damaged-*")
    assert (aside / "precious").is_dir()


@pytest.mark.parametrize("make", ["link", "directory", "fifo", "socket", "large"])
def test_read_bounded_refuses_what_is_not_a_small_plain_file(tmp_path, make):
    target = tmp_path / "x"
    if make == "link":
        target.symlink_to("/etc/hostname")
    elif make == "directory":
        target.mkdir()
    elif make == "fifo":
        os.mkfifo(target)
    elif make == "socket":
        os.mknod(target, stat.S_IFSOCK | 0o644)
    else:
        target.write_bytes(b"x" * 101)
    with pytest.raises(DamagedFileError, match=str(target)):
        read_bounded(target, limit=100)


def test_make_directory_refuses_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedFileError, match="symbolic link"):
        make_directory(tmp_path / "link")


def test_make_directory_refuses_a_file(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(NotADirectoryError, match="it is not a directory; move it away"):
        make_directory(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_what_was_replaced_and_not_flushed_is_told_apart_from_what_was_not(tmp_path, monkeypatch):
    def refuse_directories(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse_directories)
    with pytest.raises(NotFlushedError, match=str(tmp_path)):
        write_atomic(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"


def test_move_replaces_nothing(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError, match="two"):
        move(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one").read_text() == "one"
    assert (tmp_path / "two").read_text() == "two"
    move(tmp_path / "one", tmp_path / "three")
    assert (tmp_path / "three").read_text() == "one"


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_hard_linked_copy_of_a_run_shares_nothing_that_is_written(tmp_path, mode):
    (tmp_path / "run").mkdir()
    (tmp_path / "copy").mkdir()
    for name in ("journal.jsonl", "trainer.lock"):
        original = tmp_path / "run" / name
        original.write_bytes(b"one\n")
        original.chmod(mode)
        os.link(original, tmp_path / "copy" / name)
    append_line(tmp_path / "copy" / "journal.jsonl", b"two")
    os.close(open_lock(tmp_path / "copy" / "trainer.lock"))
    append_line(tmp_path / "run" / "journal.jsonl", b"three")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == b"one\nthree\n"
    copied = tmp_path / "copy" / "journal.jsonl"
    assert (copied.read_bytes(), copied.stat().st_mode & 0o777) == (b"one\ntwo\n", mode)
    locks = {(tmp_path / place / "trainer.lock").stat().st_ino for place in ("run", "copy")}
    assert len(locks) == 2
    assert len(list(tmp_path.rglob("*.tmp"))) == 0


def test_a_lock_that_is_held_stays_the_same_file_beside_a_hard_linked_copy(tmp_path):
    original = tmp_path / "trainer.lock"
    holder = open_lock(original)
    fcntl.flock(holder, fcntl.LOCK_EX)
    os.link(original, tmp_path / "copy.lock")
    for path in (original, tmp_path / "copy.lock"):
        other = open_lock(path)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
    os.close(holder)
    os.close(open_lock(tmp_path / "copy.lock"))
    assert original.stat().st_nlink == 1


def test_append_line_never_joins_lines(tmp_path):
    target = tmp_path / "journal"
    append_line(target, b"one")
    append_line(target, b"two\n")
    assert target.read_bytes() == b"one\ntwo\n"
    # A full disk cut the last one off.
    target.write_bytes(b"one\ntw")
    append_line(target, b"three")
    assert target.read_bytes() == b"one\ntw\nthree\n"


def test_a_pipe_in_the_place_of_a_log_keeps_no_writer_waiting(tmp_path):
    target = tmp_path / "journal"
    os.mkfifo(target)
    reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(IrregularFileError, match="not a regular file"):
            append_line(target, b"one")
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_a_socket_in_the_place_of_a_log_is_told_apart_from_a_failing_disk(tmp_path):
    target = tmp_path / "journal"
    os.mknod(target, stat.S_IFSOCK | 0o644)
    with pytest.raises(IrregularFileError, match="not a regular file"):
        append_line(target, b"one")


@given(step=st.integers(0, 10**15), branch=st.integers(0, 10**6))
def test_names_of_checkpoints_say_step_and_branch(step, branch):
    name = checkpoint_name(step, branch)
    assert parse_checkpoint_name(name) == StepName("ckpt", branch, step)


@given(
    a=st.tuples(st.integers(0, 9999), st.integers(0, 99)),
    b=st.tuples(st.integers(0, 9999), st.integers(0, 99)),
)
def test_names_never_collide(a, b):
    assert (checkpoint_name(*a) == checkpoint_name(*b)) == (a == b)


@pytest.mark.parametrize("name", ["checkpoint", "ckpt-", "model.ckpt", "-5", ""])
def test_other_names_say_nothing(name):
    assert parse_checkpoint_name(name) is None


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("cp-0012.ckpt", "cp-0009.ckpt"),
        ("cp-12", "cp-9"),
        ("cp-0012-0.35.ckpt", "cp-0009-1.35.ckpt"),
        ("epoch_12", "epoch_9"),
        ("model_epoch_12.ckpt", "model_epoch_9.ckpt"),
        ("epoch_12-val_loss=-0.51", "epoch_9-val_loss=0.52"),
        ("epoch=3-step=12", "epoch=2-step=9"),
        ("weights.12-0.51", "weights.09-nan"),
        ("weights-improvement-12-0.85", "weights-improvement-09-0.85"),
        ("ckpt12", "ckpt9"),
        ("model.ckpt-12", "model.ckpt-9"),
    ],
)
def test_names_of_callbacks_have_a_place_in_a_line(name, earlier):
    found, before = parse_numbered_name(name), parse_numbered_name(earlier)
    assert found is not None and before is not None
    assert (found.step, before.step) == (12, 9)
    assert found.prefix == before.prefix


@pytest.mark.parametrize(
    "name", ["best", "resnet50", "mobilenet_v2", "final-1.0", "ckpt", "cp.ckpt", "2024-01-15_best"]
)
def test_numbers_of_other_names_are_no_place(name):
    assert parse_numbered_name(name) is None


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc/passwd", "", "x\0y", "n" * 300])
def test_no_name_leads_out_of_the_run_directory(tmp_path, name):
    run = RunDirectory(tmp_path)
    for place in (run.record, run.pin, run.worker_state_directory):
        with pytest.raises(UsageError, match="not a valid checkpoint name"):
            place(name)


def test_a_flush_waits_for_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Invalid argument"):
        sync_file(tmp_path / "pipe")
