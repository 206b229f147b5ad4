"""Checkpoints made from others: added whole or not at all, and never where a start resumes."""

from __future__ import annotations

import os
from functools import partial
from operator import eq

import numpy as np
import pytest
from msgspec.structs import replace

from bundle_writing import array, write
from killed_writers import mark_of_a_killed_process
from refusing_disk import RefusingDisk
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.plan import plan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.state_list import remove_from_state_file
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.protection import protections
from tfckpt_trainer.errors import DamagedFileError, RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.heartbeats.writer_marks import make_marked
from tfckpt_trainer.rundir.paths import WRITER, RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    Derivation,
    FileFacts,
    SourceFacts,
)
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.tools.tensors import derived
from tfckpt_trainer.tools.tensors.derived import add_derived_checkpoint, require_free_name
from waiting import attempts


def record(name: str, step: int = 5, sequence: int = 5, made: bool = True) -> CheckpointRecord:
    source = SourceFacts(name=f"ckpt-{step}", step=step, weight=1.0)
    return CheckpointRecord(
        name=name,
        step=step,
        branch=0,
        sequence=sequence,
        saved_at=1e9,
        trigger="average",
        derived=Derivation(operation="average", sources=[source]) if made else None,
    )


def one(writer, touch):
    writer.add("w", "float32", (3,), [np.ones(3, np.float32)])
    touch()


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path)


def source_with_state(run, content):
    """The record of a checkpoint with a file of a worker, and one that it does not name."""
    run.create()
    own = run.worker_state_directory("ckpt-5")
    own.mkdir()
    (own / "worker-0.json").write_bytes(content)
    (own / "foreign").write_bytes(b"of another program")
    facts = FileFacts(name=".tfckpt/workers/ckpt-5/worker-0.json", size=len(content), crc32c=0)
    return replace(record("ckpt-5", made=False), files=[facts])


def names(run):
    return [checkpoint.name for checkpoint in Catalog(run).scan(2e9)]


def test_the_record_has_all_files(run):
    source = source_with_state(run, b"12345")
    stored = add_derived_checkpoint(run, record("mean"), one, workers_of=source)
    assert load(run.record("mean"), CheckpointRecord).files == stored.files
    assert {facts.name: facts.size for facts in stored.files} == {
        "mean.data-00000-of-00001": 12,
        "mean.index": (run.root / "mean.index").stat().st_size,
        ".tfckpt/workers/mean/worker-0.json": 5,
    }
    assert verify(run.root / "mean").findings == ()
    assert not (run.root / "mean_temp").exists()


def test_of_two_of_one_name_the_second_leaves_the_first_alone(run, monkeypatch):
    place = run.root / "mean_temp"
    # The first one begins after the second has looked.
    monkeypatch.setattr(derived, "_remove_killed_commands", lambda _: make_marked(place))
    with pytest.raises(RefusedError, match="mean_temp exists; choose another name"):
        add_derived_checkpoint(run, record("mean"), one)
    (mark,) = place.iterdir()
    assert mark.name.startswith(WRITER)


def test_nothing_is_left_if_any_rename_fails(run):
    """Those of the new directory, workers' files, data and index, and the record."""
    source = source_with_state(run, b"1")
    before = sorted(run.root.rglob("*"))
    for number in attempts("renames that all succeed"):
        disk = RefusingDisk(partial(eq, number), ["rename"])
        with using(disk):
            try:
                add_derived_checkpoint(run, record("mean"), one, workers_of=source)
            except OSError:
                assert sorted(run.root.rglob("*")) == before
            else:
                break
    assert number > 5
    assert names(run) == ["mean"]


def test_workers_files_of_another_size_than_recorded_are_not_copied(run):
    """Whoever shares the directory could put a file there that fills the disk."""
    source = source_with_state(run, b"12345")
    os.truncate(run.worker_state_directory("ckpt-5") / "worker-0.json", 1 << 40)
    before = sorted(run.root.rglob("*"))
    with pytest.raises(DamagedFileError, match="has 1099511627776 bytes; expected 5"):
        add_derived_checkpoint(run, record("mean"), one, workers_of=source)
    assert sorted(run.root.rglob("*")) == before


def test_nothing_is_left_in_a_directory_of_another_program_if_the_disk_is_full(run):
    def run_full(writer, touch):
        one(writer, touch)
        raise OSError(28, "No space left on device", "x")

    with pytest.raises(OSError, match="No space left"):
        add_derived_checkpoint(run, record("mean"), run_full)
    assert list(run.root.iterdir()) == []


def test_a_name_that_is_taken_in_the_meantime_is_refused(run):
    def write_other(writer, touch):
        one(writer, touch)
        write(run.root / "mean", {"other": array([1.0])})

    with pytest.raises(RefusedError, match="choose another name"):
        add_derived_checkpoint(run, record("mean"), write_other)
    assert verify(run.root / "mean").ok
    assert not run.record("mean").exists()
    assert not (run.root / "mean_temp").exists()


@pytest.mark.parametrize("file", ["thesis.txt", "more/thesis.txt", "workers/thesis.txt", ""])
def test_what_others_put_into_the_folder_of_a_killed_command_stays(run, file):
    run.create()
    place = run.root / "cut_temp"
    (place / "cut_temp").mkdir(parents=True)
    for name in (f"{WRITER}{mark_of_a_killed_process()}", "cut_temp/data-00000"):
        (place / name).touch()
    if file:
        (place / file).parent.mkdir(exist_ok=True)
        (place / file).write_bytes(b"mine")
    listed = [checkpoint.name for checkpoint in Catalog(run).scan(2e9)]
    assert listed == ([] if file else ["cut"])
    if file:
        with pytest.raises(TfckptError, match="cut"):
            delete_for_good(run, ["cut"], now=2e9, update_state_file=False)
    add_derived_checkpoint(run, record("mean"), one)
    assert [path.read_bytes() for path in run.root.rglob("thesis.txt")] == [b"mine"] * bool(file)
    assert place.exists() == bool(file)


@pytest.mark.parametrize("name", ["ckpt-1", "cut", "known", "graph"])
def test_names_of_anything_are_taken(run, name):
    run.create()
    write(run.root / "ckpt-1", {"a": array([1.0])})
    (run.root / "cut_temp").mkdir()
    (run.root / "graph.meta").touch()
    store(run.record("known"), record("known"))
    with pytest.raises(RefusedError, match="choose another name"):
        require_free_name(run, name)
    require_free_name(run, "ckpt")


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "x" * 300])
def test_names_that_are_no_file_names_are_refused(run, name):
    with pytest.raises(UsageError, match="not a valid checkpoint name"):
        require_free_name(run, name)


def test_a_start_resumes_from_what_training_saved(run):
    run.create()
    for step in (3, 5):
        write(run.root / f"ckpt-{step}", {"a": array([1.0])})
        store(run.record(f"ckpt-{step}"), record(f"ckpt-{step}", step, step, made=False))
    add_derived_checkpoint(run, record("zzz"), one)
    add_derived_checkpoint(run, record("average-3", 3, 3), one)
    assert resume_point(run).checkpoint == "ckpt-5"
    assert names(run) == ["ckpt-5", "zzz", "ckpt-3", "average-3"]


def test_in_a_directory_without_records_and_list_it_is_beside_its_source_and_not_the_newest(run):
    for step in (3, 5, 7):
        write(run.root / f"model-{step}", {"a": array([1.0])})
    made = record("average-5", sequence=0)
    sources = [SourceFacts(name=f"model-{step}", step=step) for step in (3, 5)]
    made = replace(made, derived=Derivation(operation="average", sources=sources))
    add_derived_checkpoint(run, made, one)
    found = Catalog(run).scan(2e9)
    assert [c.name for c in found] == ["model-7", "model-5", "average-5", "model-3"]
    assert [c.name for c in found if c.is_head] == ["model-7"]
    assert resume_point(run) is None
    for name in ("model-7", "model-5"):
        (run.root / f"{name}.data-00000-of-00001").unlink()
    found = Catalog(run).scan(2e9)
    assert [c.name for c in found if c.is_head] == ["model-3"]
    assert protections(found)["model-3"] == "training continues from it"
    assert "average-5" not in protections(found)


def test_rules_neither_count_nor_delete_it(run):
    run.create()
    for step in (3, 5, 7):
        write(run.root / f"ckpt-{step}", {"a": array([1.0])})
        store(run.record(f"ckpt-{step}"), record(f"ckpt-{step}", step, step, made=False))
    add_derived_checkpoint(run, record("average-7", 7, 7), one)
    add_derived_checkpoint(run, record("average-3", 3, 3), one)
    found = Catalog(run).scan(2e9)
    decided = {d.checkpoint.name: d for d in plan(found, Policy(keep_last=2)).decisions}
    assert [name for name, d in decided.items() if not d.keep] == ["ckpt-3"]
    assert decided["average-3"].reason == "made by average: delete it by name"
    by_name = plan_of_names(found, ["average-7"])
    assert [c.name for c in by_name.deleted] == ["average-7"]


def test_after_a_prune_the_state_file_names_one_that_training_saved(run):
    run.create()
    for step in (3, 5):
        write(run.root / f"ckpt-{step}", {"a": array([1.0])})
        store(run.record(f"ckpt-{step}"), record(f"ckpt-{step}", step, step, made=False))
    write_state_file(run.state_file, StateFile("ckpt-5", ("ckpt-3", "ckpt-5"), (1.0, 2.0), None))
    add_derived_checkpoint(run, record("average-5"), one)
    (run.root / "ckpt-5.index").unlink()
    remaining = [c for c in Catalog(run).scan(2e9) if c.name != "ckpt-5"]
    without_head = [replace(c, is_head=False) for c in remaining]
    remove_from_state_file(run, frozenset({"ckpt-5"}), without_head)
    assert read_state_file(run.state_file).latest == "ckpt-3"


def test_a_start_in_a_directory_of_another_program_resumes_from_its_state_file(run):
    write(run.root / "model-5", {"a": array([1.0])})
    write_state_file(run.state_file, StateFile("model-5", ("model-5",), (1.0,), None))
    add_derived_checkpoint(run, record("average-5", sequence=0), one)
    assert resume_point(run).checkpoint == "model-5"


def test_a_start_resumes_from_an_average_if_there_is_nothing_else(run):
    add_derived_checkpoint(run, record("average-5"), one)
    assert resume_point(run).checkpoint == "average-5"
