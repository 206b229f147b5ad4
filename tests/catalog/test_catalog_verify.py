"""Verifying checkpoints of a run: with the digests of its record, and while somebody writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_directory import CheckpointDirectory

from bundle_writing import array, write
from file_times import next_tick
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import holds_for, store_result
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.verification.verify_checkpoint import (
    RECORD_UNUSABLE,
    Verified,
    verify_checkpoint,
)
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.documents import store

NAME = "ckpt-7"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    run.create()
    return run


def save(run: RunDirectory, value: float = 1.0, *, recorded: bool = True) -> None:
    """Writes a checkpoint with the own state of two workers, and its record with all digests."""
    own = run.worker_state_directory(NAME)
    own.mkdir(parents=True, exist_ok=True)
    paths = write(run.root / NAME, {"w": array(np.full(1000, value))})
    for index in range(2):
        paths += write(own / f"worker-{index}", {"position": array(np.int64(index))})
    if recorded:
        record(run, paths)


def record(run: RunDirectory, paths: list[Path], **changed: str) -> None:
    facts = [
        FileFacts(
            name=changed.get(path.name, path.relative_to(run.root).as_posix()),
            size=path.stat().st_size,
            crc32c=crc32c(path.read_bytes()),
        )
        for path in paths
    ]
    store(
        run.record(NAME),
        CheckpointRecord(
            name=NAME, step=7, branch=0, sequence=1, saved_at=1.7e9, trigger="command", files=facts
        ),
    )


def verified(run: RunDirectory) -> Verified:
    found = verify_checkpoint(run, NAME, clock=lambda: 1234.0)
    assert found is not None
    return found


def faults(found: Verified) -> list[tuple[str, str, str]]:
    return [(fault.severity, fault.kind, fault.file) for fault in found.record.findings]


def worker(run: RunDirectory, index: int, ending: str = ".data-00000-of-00001") -> Path:
    return run.worker_state_directory(NAME) / f"worker-{index}{ending}"


def test_a_sound_one_leaves_a_record_of_exactly_these_files(run: RunDirectory) -> None:
    save(run)
    found = verified(run)
    assert found.ok
    assert (found.record.name, found.record.verified_at, found.record.tensors) == (NAME, 1234.0, 1)
    assert found.record.findings == []
    facts = FileScanner(run.root).scan()[NAME].facts
    assert holds_for(found.record, facts, run.root)
    directory = run.worker_state_directory(NAME)
    own = [directory, *directory.glob("*")]
    notes = [run.record(NAME), run.record_copy(NAME)]
    everything = [*run.root.glob(f"{NAME}.*"), *own, *notes]
    assert set(found.record.files) == {str(path.relative_to(run.root)) for path in everything}
    os.utime(run.root / f"{NAME}.index", (1, 1))
    assert not holds_for(found.record, FileScanner(run.root).scan()[NAME].facts, run.root)


def test_another_save_of_the_same_size_is_not_what_was_recorded(run: RunDirectory) -> None:
    save(run)
    save(run, 2.0, recorded=False)
    found = verified(run)
    assert faults(found) == [("error", "record", f"{NAME}.index")]
    assert not found.ok


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "link"])
def test_the_own_state_of_a_worker_is_held_against_its_digest(
    run: RunDirectory, damage: str
) -> None:
    save(run)
    path = worker(run, 1)
    content = path.read_bytes()
    path.unlink()
    if damage == "flipped":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "link":
        aside = path.with_name("aside")
        aside.write_bytes(content)
        path.symlink_to(aside)
    kind = {"cut": "record-short", "missing": "record-missing"}.get(damage, "record")
    assert faults(verified(run)) == [("error", kind, path.name)]


def test_a_record_of_files_elsewhere_reads_none_of_them(run: RunDirectory, tmp_path: Path) -> None:
    save(run, recorded=False)
    outside = tmp_path / "outside"
    os.mkfifo(outside)
    paths = sorted(run.root.glob(f"{NAME}.*"))
    record(run, paths, **{paths[0].name: "../outside", paths[1].name: str(outside)})
    assert verified(run).ok


def test_a_damaged_record_is_a_warning(run: RunDirectory) -> None:
    save(run)
    run.record(NAME).write_bytes(b"{torn")
    found = verified(run)
    assert faults(found) == [("warning", "record", f"{NAME}.json")]
    assert "Its copy ckpt-7.json.copy is used." in found.record.findings[0].message
    assert found.ok and found.is_exact
    run.record_copy(NAME).write_bytes(b"{torn")
    found = verified(run)
    assert faults(found) == [
        ("warning", RECORD_UNUSABLE, f"{NAME}.json"),
        ("warning", "record", f"{NAME}.json.copy"),
    ]
    assert not found.is_exact
    assert "but not the input position and the random states" in found.record.findings[0].message


def test_a_lost_record_is_a_warning_and_the_list_says_so(run: RunDirectory) -> None:
    """Only a save with a record writes the state of workers."""
    save(run)
    for path in (run.record(NAME), run.record_copy(NAME)):
        path.unlink()
    found = verified(run)
    assert faults(found) == [("warning", RECORD_UNUSABLE, f"{NAME}.json")]
    assert found.ok and not found.is_exact
    store_result(run, found.record)
    (listed,) = Catalog(run).scan(time.time())
    assert listed.state is CheckpointState.INEXACT
    assert listed.problem.startswith("Its record cannot be used.")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_something_else_in_the_place_of_a_record_makes_it_inexact(
    run: RunDirectory, make: Callable[[Path], object]
) -> None:
    save(run)
    for path in (run.record(NAME), run.record_copy(NAME)):
        path.unlink()
        make(path)
    (listed,) = Catalog(run).scan(time.time())
    assert listed.state is CheckpointState.INEXACT
    assert not verified(run).is_exact


def test_a_damaged_copy_of_a_record_is_a_warning(run: RunDirectory) -> None:
    save(run)
    run.record_copy(NAME).write_bytes(b"{torn")
    found = verified(run)
    assert faults(found) == [("warning", "record", f"{NAME}.json.copy")]
    assert found.ok


@pytest.mark.parametrize("which", ["record", "copy"])
def test_a_finding_does_not_hold_once_a_record_or_its_copy_was_changed(
    run: RunDirectory, which: str
) -> None:
    save(run)
    found, facts = verified(run), FileScanner(run.root).scan()[NAME].facts
    assert holds_for(found.record, facts, run.root)
    path = run.record(NAME) if which == "record" else run.record_copy(NAME)
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    next_tick(run.root)
    path.write_bytes(content)
    assert not holds_for(found.record, facts, run.root)


def test_a_finding_does_not_hold_once_a_missing_file_is_back(
    run: RunDirectory, tmp_path: Path
) -> None:
    save(run)
    state = run.worker_state_directory(NAME) / "worker-0.index"
    os.rename(state, tmp_path / "aside")
    found = verified(run)
    assert not found.ok
    next_tick(tmp_path)
    os.rename(tmp_path / "aside", state)
    assert not holds_for(found.record, FileScanner(run.root).scan()[NAME].facts, run.root)


def test_no_flipped_bit_of_a_record_passes(run: RunDirectory) -> None:
    save(run)
    path = run.record(NAME)
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(data))
        assert faults(verified(run)) == [("warning", "record", f"{NAME}.json")], bit


def test_without_a_record_the_checksums_of_tensorflow_count(run: RunDirectory) -> None:
    save(run, recorded=False)
    worker(run, 0).unlink()
    assert verified(run).ok


@pytest.mark.parametrize("name", ["ckpt-8", "", "../run/ckpt-7", NAME + ".index"])
def test_what_is_not_there_is_a_usage_error(run: RunDirectory, name: str) -> None:
    save(run)
    with pytest.raises(UsageError, match="There is no checkpoint"):
        verify_checkpoint(run, name)


def test_given_up_it_is_no_verdict(run: RunDirectory) -> None:
    save(run)
    assert verify_checkpoint(run, NAME, cancelled=lambda: True) is None


class Rewriter:
    """Replaces the data file at each of the first `times` reads, as a save over it does."""

    def __init__(self, run: RunDirectory, times: int) -> None:
        self._run = run
        self._left = times
        self.reads = 0

    def __call__(self, done: int, total: int) -> None:
        self.reads += 1
        if self._left > 0:
            self._left -= 1
            thread = threading.Thread(target=save, args=(self._run, float(self.reads)))
            thread.start()
            thread.join()


def test_a_save_that_comes_between_is_waited_out(run: RunDirectory) -> None:
    save(run)
    rewriter = Rewriter(run, times=2)
    found = verify_checkpoint(run, NAME, on_progress=rewriter)
    assert found is not None
    assert found.ok
    assert rewriter.reads == 3
    assert holds_for(found.record, FileScanner(run.root).scan()[NAME].facts, run.root)


def test_what_never_holds_still_is_refused(run: RunDirectory) -> None:
    save(run)
    with pytest.raises(RefusedError, match="ckpt-7 changed while it was read"):
        verify_checkpoint(run, NAME, on_progress=Rewriter(run, times=99))


def test_one_that_is_deleted_meanwhile_is_gone(run: RunDirectory) -> None:
    save(run)

    def delete(done: int, total: int) -> None:
        for path in run.root.glob(f"{NAME}.*"):
            path.unlink(missing_ok=True)

    with pytest.raises(UsageError, match="There is no checkpoint"):
        verify_checkpoint(run, NAME, on_progress=delete)


def test_a_look_that_is_kept_sees_what_changed(run: RunDirectory) -> None:
    save(run)
    files = FileScanner(run.root)
    first = verify_checkpoint(run, NAME, files=files)
    save(run, 2.0)
    second = verify_checkpoint(run, NAME, files=files)
    assert first is not None
    assert second is not None
    assert first.record.files != second.record.files
    assert holds_for(second.record, FileScanner(run.root).scan()[NAME].facts, run.root)


def test_a_file_that_looks_like_a_data_file_is_found_with_and_without_a_scanner(run):
    save(run)
    stray = f"{NAME}.data-00000-of-00001.bak"
    (run.root / stray).write_bytes(b"")
    for files in (None, FileScanner(run.root), FileScanner(run.root, frozenset({NAME}))):
        found = verify_checkpoint(run, NAME, files=files)
        assert found is not None
        assert [fault.file for fault in found.record.findings] == [stray]


def test_what_happens_to_a_workers_own_file_makes_it_unknown_again(tmp_path):
    made = CheckpointDirectory(tmp_path / "run")
    name = made.ours(5)
    own = made.run.worker_state_directory(name) / "worker-0.index"
    found = verify_checkpoint(made.run, name)
    assert found is not None
    facts = FileScanner(made.run.root).scan()[name].facts
    assert holds_for(found.record, facts, made.run.root)
    content = bytearray(own.read_bytes())
    content[8] ^= 1
    own.write_bytes(content)
    assert not holds_for(found.record, facts, made.run.root)
