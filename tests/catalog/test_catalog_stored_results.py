"""What verifying found counts in the state, for exactly the files that were read."""

from __future__ import annotations

import os

import pytest
from checkpoint_directory import NOW, CheckpointDirectory

from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import Verifications, store_result
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.records.checkpoint import FoundFault, VerificationRecord

FLIPPED = "v00000 in ckpt-1.data-00000-of-00001 does not match its checksum"


def verified(
    made: CheckpointDirectory,
    name: str,
    *faults: FoundFault,
    at: float = NOW - 60,
    not_finite: int | None = None,
) -> VerificationRecord:
    """Remembers a verification of the files that are there now."""
    record = VerificationRecord(
        name=name,
        verified_at=at,
        seconds=0.1,
        bytes=8,
        tensors=1,
        files={fact.name: fact.identity for fact in FileScanner(made.root).scan()[name].facts},
        findings=list(faults),
        not_finite=not_finite,
    )
    store_result(made.run, record)
    return record


def fault(kind: str, message: str, severity: str = "error") -> FoundFault:
    return FoundFault(severity=severity, kind=kind, file="ckpt-1", message=message)


def seen(found: Checkpoint) -> tuple[CheckpointState, str, float | None]:
    return found.state, found.problem, found.verified_at


def test_without_an_error_it_is_verified(made):
    made.tensorflow("ckpt-1")
    assert seen(made.scan()["ckpt-1"]) == (CheckpointState.COMPLETE, "", None)
    verified(made, "ckpt-1", fault("shard-long", "some bytes more", "warning"))
    assert seen(made.scan()["ckpt-1"]) == (CheckpointState.VERIFIED, "", NOW - 60)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("checksum", CheckpointState.CORRUPT),
        ("object-graph", CheckpointState.CORRUPT),
        ("shard-missing", CheckpointState.INCOMPLETE),
        ("shard-short", CheckpointState.INCOMPLETE),
    ],
)
def test_with_an_error_it_cannot_be_restored_and_says_why(made, kind, state):
    made.tensorflow("ckpt-1")
    verified(made, "ckpt-1", fault("shard-long", "no matter", "warning"), fault(kind, FLIPPED))
    assert seen(made.scan()["ckpt-1"]) == (state, f"{FLIPPED}.", NOW - 60)


def test_damage_beats_our_record(made):
    made.ours(100)
    found = made.scan()["ckpt-100"]
    assert (found.state, found.verified_at) == (CheckpointState.VERIFIED, found.saved_at)
    verified(made, "ckpt-100", fault("checksum", FLIPPED))
    assert made.scan()["ckpt-100"].state is CheckpointState.CORRUPT


def test_a_later_verification_says_when(made):
    made.ours(100)
    verified(made, "ckpt-100")
    assert made.scan()["ckpt-100"].verified_at == NOW - 60


def test_it_does_not_make_up_for_a_lost_state_of_a_worker(made):
    made.ours(100, workers=2)
    verified(made, "ckpt-100")
    (made.run.worker_state_directory("ckpt-100") / "worker-1.index").unlink()
    assert made.scan()["ckpt-100"].state is CheckpointState.INCOMPLETE


@pytest.mark.parametrize("damaged", [False, True])
def test_it_holds_until_a_file_is_changed(made, damaged):
    made.tensorflow("ckpt-1", shards=2)
    verified(made, "ckpt-1", *([fault("checksum", FLIPPED)] if damaged else []))
    made.touch(made.root / "ckpt-1.data-00001-of-00002", 10)
    assert seen(made.scan()["ckpt-1"]) == (CheckpointState.COMPLETE, "", None)


def test_it_holds_until_a_missing_file_is_back(made):
    made.tensorflow("ckpt-1", shards=2)
    shard = made.root / "ckpt-1.data-00001-of-00002"
    aside = made.root / "aside"
    os.rename(shard, aside)
    verified(made, "ckpt-1", fault("shard-missing", "it is missing"))
    assert made.scan()["ckpt-1"].state is CheckpointState.INCOMPLETE
    os.rename(aside, shard)
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_the_graph_of_tensorflow_1_is_not_read_and_does_not_matter(made):
    made.tensorflow("ckpt-1")
    verified(made, "ckpt-1")
    (made.root / "ckpt-1.meta").write_bytes(b"graph")
    assert made.scan()["ckpt-1"].state is CheckpointState.VERIFIED


def test_a_save_over_it_is_writing_whatever_was_found_before(made):
    made.tensorflow("ckpt-1", age=30)
    verified(made, "ckpt-1")
    made.temporary("ckpt-1", age=2)
    assert made.scan()["ckpt-1"].state is CheckpointState.WRITING


def test_a_second_look_sees_a_new_verification(made):
    made.run.create()
    made.tensorflow("ckpt-1")
    catalog = Catalog(made.run)
    assert catalog.scan(NOW)[0].state is CheckpointState.COMPLETE
    verified(made, "ckpt-1")
    assert catalog.scan(NOW)[0].state is CheckpointState.VERIFIED
    made.run.verification("ckpt-1").unlink()
    assert catalog.scan(NOW)[0].state is CheckpointState.COMPLETE


def test_damaged_ones_and_those_of_another_name_say_nothing(made):
    made.run.create()
    made.tensorflow("ckpt-1")
    verified(made, "ckpt-1")
    os.rename(made.run.verification("ckpt-1"), made.run.verification("ckpt-2"))
    (made.run.verifications_directory / "ckpt-1.json").write_text('{"name": 7}')
    assert Verifications(made.run).look() == {}
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_of_somebody_elses_directory_it_is_remembered_without_writing_there(made):
    made.tensorflow("ckpt-1")
    verified(made, "ckpt-1")
    assert not made.run.control.exists()
    assert made.scan()["ckpt-1"].state is CheckpointState.VERIFIED


def test_it_is_remembered_of_a_run_that_cannot_be_written(made):
    made.tensorflow("ckpt-1")
    made.run.control.mkdir()
    made.run.verifications_directory.write_text("no directory")
    verified(made, "ckpt-1")
    assert made.scan()["ckpt-1"].state is CheckpointState.VERIFIED


def test_a_verification_goes_to_the_trash_and_comes_back_with_its_checkpoint(made):
    made.run.create()
    for name in ("ckpt-1", "ckpt-2", "ckpt-3"):
        made.tensorflow(name)
    verified(made, "ckpt-1")
    verified(made, "ckpt-3")
    move_to_trash(made.run, ["ckpt-1"], by="test", now=NOW, update_state_file=True)
    assert set(Verifications(made.run).look()) == {"ckpt-3"}
    undo(made.run, None, update_state_file=True)
    assert made.scan()["ckpt-1"].state is CheckpointState.VERIFIED


def test_whether_values_are_finite_is_known_as_long_as_no_file_changes(made):
    made.tensorflow("ckpt-1")
    verified(made, "ckpt-1")
    assert made.scan()["ckpt-1"].not_finite_tensors is None
    verified(made, "ckpt-1", not_finite=3)
    assert made.scan()["ckpt-1"].not_finite_tensors == 3
    # A later verification that does not look at the values does not forget them.
    verified(made, "ckpt-1", at=NOW - 30)
    found = made.scan()["ckpt-1"]
    assert (found.not_finite_tensors, found.verified_at) == (3, NOW - 30)
    os.utime(made.root / "ckpt-1.index", (NOW, NOW))
    verified(made, "ckpt-1")
    assert made.scan()["ckpt-1"].not_finite_tensors is None


def test_a_result_that_comes_after_a_prune_is_not_left_behind(made):
    for step in (100, 200):
        made.ours(step)
    record = verified(made, "ckpt-100")
    stored = made.run.verification("ckpt-100")
    stored.unlink()
    move_to_trash(made.run, ["ckpt-100"], by="me", now=NOW, update_state_file=True)
    store_result(made.run, record)
    assert not stored.exists()
