"""Verification results that are stored together count as those that are stored alone."""

from __future__ import annotations

import os

import pytest
from checkpoint_directory import NOW, CheckpointDirectory

from tfckpt_trainer.catalog.directory import result_batches
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.result_batches import merge_batches, names_in_batches
from tfckpt_trainer.catalog.directory.stored_results import (
    ResultStore,
    Verifications,
    names_with_results,
    store_result,
)
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.records.checkpoint import FoundFault, VerificationRecord

NAMES = ("ckpt-1", "ckpt-2", "ckpt-3")
COMPLETE, VERIFIED = CheckpointState.COMPLETE, CheckpointState.VERIFIED


@pytest.fixture
def made(made: CheckpointDirectory) -> CheckpointDirectory:
    made.run.create()
    for name in NAMES:
        made.tensorflow(name)
    return made


def result(
    made: CheckpointDirectory,
    name: str,
    *,
    at: float = NOW - 60,
    damaged: bool = False,
    not_finite: int | None = None,
) -> VerificationRecord:
    fault = FoundFault(severity="error", kind="checksum", file=name, message="it does not match")
    return VerificationRecord(
        name=name,
        verified_at=at,
        seconds=0.1,
        bytes=8,
        tensors=1,
        files={fact.name: fact.identity for fact in FileScanner(made.root).scan()[name].facts},
        findings=[fault] if damaged else [],
        not_finite=not_finite,
    )


def states(made: CheckpointDirectory) -> list[CheckpointState]:
    found = made.scan()
    return [found[name].state for name in NAMES]


def batches(made: CheckpointDirectory) -> list[str]:
    return sorted(os.listdir(made.run.verifications_directory))


def test_they_count_until_a_file_changes(made):
    ResultStore(made.run).store_together([result(made, name) for name in NAMES])
    assert states(made) == [VERIFIED] * 3
    assert len(batches(made)) == 1
    made.touch(made.root / "ckpt-2.index", 10)
    assert states(made) == [VERIFIED, COMPLETE, VERIFIED]


def test_the_newest_counts_wherever_it_is(made):
    store = ResultStore(made.run)
    store.store_together([result(made, "ckpt-1"), result(made, "ckpt-2", at=NOW - 10)])
    store_result(made.run, result(made, "ckpt-1", at=NOW - 30, damaged=True))
    store_result(made.run, result(made, "ckpt-2", at=NOW - 30, damaged=True))
    assert states(made) == [CheckpointState.CORRUPT, VERIFIED, COMPLETE]
    store.store_together([result(made, "ckpt-1", at=NOW - 5)])
    assert states(made) == [VERIFIED, VERIFIED, COMPLETE]
    assert names_with_results(made.run) >= {"ckpt-1", "ckpt-2"}
    store.merge()
    assert states(made) == [VERIFIED, VERIFIED, COMPLETE]
    assert len(batches(made)) == 3


def test_a_second_look_sees_new_ones_merged_ones_and_that_they_are_gone(made):
    catalog, store = Catalog(made.run), ResultStore(made.run)

    def seen() -> set[str]:
        return {found.name for found in catalog.scan(NOW) if found.state is VERIFIED}

    assert seen() == set()
    store.store_together([result(made, "ckpt-1")])
    assert seen() == {"ckpt-1"}
    store.store_together([result(made, "ckpt-2")])
    assert seen() == {"ckpt-1", "ckpt-2"}
    store.merge()
    assert seen() == {"ckpt-1", "ckpt-2"}
    for name in batches(made):
        (made.run.verifications_directory / name).unlink()
    assert seen() == set()


def test_they_are_found_for_some_checkpoints_alone(made):
    ResultStore(made.run).store_together([result(made, name) for name in NAMES])
    assert set(Verifications(made.run, frozenset({"ckpt-2", "ckpt-9"})).look()) == {"ckpt-2"}


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 64, b'{"name": 7}\n', b'{"name":"../x","verified_at":1}\n', b"\n" * 999]
)
def test_a_damaged_line_and_those_after_it_say_nothing(made, damage):
    ResultStore(made.run).store_together([result(made, name) for name in NAMES])
    (path,) = made.run.verifications_directory.iterdir()
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + (damage or third[:40]) + third)
    # Written in place: only a new reader looks again.
    assert states(made)[:2] == [VERIFIED, COMPLETE]
    merge_batches(made.run.verifications_directory)
    assert names_in_batches(made.run.verifications_directory) >= {"ckpt-1"}


def test_a_line_that_was_changed_is_damaged(made):
    ResultStore(made.run).store_together([result(made, "ckpt-1", damaged=True)])
    (path,) = made.run.verifications_directory.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"severity":"error"', b'"severity":"warni"'))
    assert states(made) == [COMPLETE] * 3


def test_links_and_files_that_are_too_large_say_nothing(made, tmp_path, monkeypatch):
    ResultStore(made.run).store_together([result(made, name) for name in NAMES])
    (path,) = made.run.verifications_directory.iterdir()
    elsewhere = tmp_path / "elsewhere"
    os.rename(path, elsewhere)
    path.symlink_to(elsewhere)
    assert states(made) == [COMPLETE] * 3
    path.unlink()
    os.rename(elsewhere, path)
    assert states(made) == [VERIFIED] * 3
    monkeypatch.setattr(result_batches, "_LARGEST", 100)
    assert states(made) == [COMPLETE] * 3


def test_merging_keeps_the_newest_as_far_as_there_is_room(made, monkeypatch):
    store = ResultStore(made.run)
    for age, name in enumerate(NAMES, 1):
        store.store_together([result(made, name, at=NOW - age), result(made, name, at=NOW - 50)])
    size = max(path.stat().st_size for path in made.run.verifications_directory.iterdir())
    monkeypatch.setattr(result_batches, "_LARGEST", size)
    store.merge()
    assert states(made) == [VERIFIED, VERIFIED, COMPLETE]


def test_they_come_back_with_their_checkpoint(made):
    ResultStore(made.run).store_together([result(made, name) for name in NAMES])
    move_to_trash(made.run, ["ckpt-1"], by="test", now=NOW, update_state_file=True)
    assert "ckpt-1" not in made.scan()
    undo(made.run, None, update_state_file=True)
    assert states(made) == [VERIFIED] * 3


@pytest.mark.parametrize("together", [(True, False), (False, True), (True, True)])
def test_whether_values_are_finite_is_not_forgotten(made, together):
    store = ResultStore(made.run)
    for is_together, not_finite, at in zip(together, (3, None), (NOW - 60, NOW - 30), strict=True):
        found = result(made, "ckpt-1", at=at, not_finite=not_finite)
        (store.store_together([found]) if is_together else store.store(found))
    found = made.scan()["ckpt-1"]
    assert (found.not_finite_tensors, found.verified_at) == (3, NOW - 30)


def test_of_a_directory_of_another_program_they_are_in_the_cache(tmp_path):
    made = CheckpointDirectory(tmp_path / "theirs")
    made.tensorflow("ckpt-1")
    ResultStore(made.run).store_together([result(made, "ckpt-1")])
    assert not made.run.control.exists()
    assert made.scan()["ckpt-1"].state is VERIFIED
